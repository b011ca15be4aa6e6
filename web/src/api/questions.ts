/** The open questions: counted by the frame, listed by the inbox. */
import type { Concerns } from "./query";

export const OPEN = "/approvals?status=open&limit=200";
const TYPES = new Set(["asked", "answered", "reasked", "ended", "moved", "patched"]);
export const asking: Concerns = (event) => TYPES.has(event.type);

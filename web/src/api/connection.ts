/** How things stand between the page and the server, as a value: what happens next is a table. */
export type Connection =
  | { kind: "connecting" }
  | { kind: "live" }
  | { kind: "reconnecting"; since: number; tries: number }
  | { kind: "offline"; since: number; tries: number }
  | { kind: "signed out" };

export type Signal = "opened" | "lost" | "refused";

export const WAIT_SECONDS = [0.5, 1, 2, 4, 8, 15];
/** After so many tries in vain it is called offline. */
export const TRIES_MAX = 4;

export function next(state: Connection, signal: Signal, now: number): Connection {
  if (signal === "opened") return { kind: "live" };
  if (signal === "refused") return { kind: "signed out" };
  const before = "tries" in state ? state : { since: now, tries: 0 };
  const tries = before.tries + 1;
  return { kind: tries > TRIES_MAX ? "offline" : "reconnecting", since: before.since, tries };
}

/** How long until the next try; never longer than the last of the table. */
export function pause(state: Connection): number {
  const tries = "tries" in state ? state.tries : 0;
  return WAIT_SECONDS[Math.min(tries, WAIT_SECONDS.length - 1)] ?? 15;
}

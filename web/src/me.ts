/** Who is signed in, for whatever depends on the role. */
import { createContext, useContext } from "react";
import type { Me } from "./api/schema";

const LEVELS = ["viewer", "operator", "ceo", "admin"];

export const MeContext = createContext<Me>({ name: "", role: "viewer", csrf: null });

export function useMe(): Me & { atLeast: (role: string) => boolean } {
  const me = useContext(MeContext);
  return { ...me, atLeast: (role) => LEVELS.indexOf(me.role) >= LEVELS.indexOf(role) };
}

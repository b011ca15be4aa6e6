/** Whether a key may decide what is in hand: it has been on screen for a second. */
import { useEffect, useState } from "react";
import { arm, type Screen } from "../logic/arming";

const SCREEN: Screen = {
  isVisible: () => document.visibilityState === "visible",
  painted: (then) => {
    let frame = requestAnimationFrame(() => (frame = requestAnimationFrame(then))); // the second comes after the first was painted
    return () => cancelAnimationFrame(frame);
  },
  watch: (changed) => {
    document.addEventListener("visibilitychange", changed);
    return () => document.removeEventListener("visibilitychange", changed);
  },
};

export function useArmed(what: string): boolean {
  const [armed, setArmed] = useState<string>();
  useEffect(() => arm(SCREEN, (isArmed) => setArmed(isArmed ? what : undefined)), [what]);
  return armed === what;
}

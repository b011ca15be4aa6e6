/** Keys that work anywhere but in a field. A key that is held acts once, unless it only moves. */
import { useEffect } from "react";

type Keys = Record<string, () => void>;
type Options = { mayRepeat?: boolean };
export type Pressed = Pick<KeyboardEvent, "key" | "repeat" | "ctrlKey" | "metaKey" | "altKey" | "defaultPrevented" | "target" | "preventDefault">;

let held = ""; // the key that has acted and may still be down: it is not typed where it has led to

export function keyDown(event: Pressed, keys: Keys, { mayRepeat = false }: Options = {}): void {
  if (event.defaultPrevented) return;
  if (!event.repeat) held = "";
  else if (event.key === held) event.preventDefault();
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if ((event.target as HTMLElement).closest("input, textarea, select, dialog, [contenteditable]")) return;
  const does = keys[event.key];
  if (!does) return;
  event.preventDefault();
  if (event.repeat && !mayRepeat) return;
  held = mayRepeat ? "" : event.key;
  does();
}

export function useKeys(keys: Keys, options?: Options): void {
  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => keyDown(event, keys, options);
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  });
}

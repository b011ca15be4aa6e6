/** Keys that work anywhere but in a field. */
import { useEffect } from "react";

export function useKeys(keys: Record<string, () => void>): void {
  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const target = event.target as HTMLElement;
      if (target.closest("input, textarea, select, dialog, [contenteditable]")) return;
      const does = keys[event.key];
      if (!does) return;
      event.preventDefault();
      does();
    };
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  });
}

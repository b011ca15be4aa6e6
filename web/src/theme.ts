/** Light or dark: as the system has it, until somebody chooses. */
import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";
const KEY = "handrail-theme";
const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const watchers = new Set<() => void>();
let theme = (localStorage.getItem(KEY) as Theme | null) ?? "system";
apply();

function apply(): void {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function useTheme(): [Theme, () => void] {
  const now = useSyncExternalStore(
    (watcher) => (watchers.add(watcher), () => watchers.delete(watcher)),
    () => theme,
  );
  return [now, turn];
}

function turn(): void {
  theme = NEXT[theme];
  localStorage.setItem(KEY, theme);
  apply();
  watchers.forEach((one) => one());
}

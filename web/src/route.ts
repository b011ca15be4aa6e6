/** Where in the page we are: the path, what stands behind it, and the query, all in the address. */
import { useSyncExternalStore } from "react";

export interface Route {
  view: string; // "" at the front
  item: string;
  query: URLSearchParams;
}

const watchers = new Set<() => void>();
let current = read();

function read(): Route {
  const [view = "", item = ""] = location.pathname.split("/").filter(Boolean);
  return { view, item: decodeURIComponent(item), query: new URLSearchParams(location.search) };
}

function changed(): void {
  current = read();
  watchers.forEach((one) => one());
}

window.addEventListener("popstate", changed);

export function useRoute(): Route {
  return useSyncExternalStore(
    (watcher) => (watchers.add(watcher), () => watchers.delete(watcher)),
    () => current,
  );
}

export function go(address: string, { replace = false } = {}): void {
  if (address === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  changed();
}

/** The same place with another word in its query; an empty one is left out. */
export function setQuery(name: string, value: string): void {
  const query = new URLSearchParams(location.search);
  if (value) query.set(name, value);
  else query.delete(name);
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ""), { replace: true });
}

/**
 * What was asked of the API, kept by its path: shown at once when asked again, and asked anew when
 * an event says that it may have changed. Old data stays until the new one is there, so that nothing
 * jumps; an error stands beside it.
 */
import { useEffect, useSyncExternalStore } from "react";
import { kept } from "../logic/kept";
import { get, read } from "./client";
import { listen, onReturn, position } from "./live";
import type { HistoryEvent } from "./schema";
import { hearAnswers, isBefore, once } from "./shared";

const AGAIN_MS = 150; // events that come together are one reason to ask
const KEPT_MAX = 300;

export interface Asked<T> {
  data: T | undefined;
  error: Error | undefined;
  again: () => void;
}

export type Concerns = (event: HistoryEvent) => boolean;

class Entry {
  state: Asked<unknown> = { data: undefined, error: undefined, again: () => this.ask() };
  readonly watchers = new Set<() => void>();
  private busy = false;
  private dirty = false;
  private known = ""; // asked for after the event at this position
  private wanted = ""; // the last event that may have changed it
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly path: string,
    private readonly accept: string | undefined,
  ) {}

  /** Asks, unless it is asking already. */
  look(): void {
    if (!this.busy) this.ask();
  }

  /** Asks now; if it is asking already, once more afterwards. */
  ask(share = false): void {
    if (this.busy) {
      this.dirty = true;
      return;
    }
    this.busy = true;
    const [at, before] = [position(), this.known];
    const isShared = share && this.accept === undefined;
    const asked = isShared ? once(this.path, at, () => read(this.path)).then((text): unknown => JSON.parse(text)) : get(this.path, { accept: this.accept });
    void asked
      .then((data) => (this.known === before || !isBefore(at, this.known)) && this.take(data, at)) // unless another tab was told later
      .catch((error: unknown) => this.set({ error: error as Error }))
      .finally(() => {
        const isOld = this.dirty;
        this.busy = this.dirty = false;
        if (isOld) this.ask();
      });
  }

  /** An event may have changed it: asked for soon, unless another tab was told meanwhile. */
  soon(): void {
    this.wanted = position();
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      if (isBefore(this.known, this.wanted)) this.ask(true);
    }, AGAIN_MS);
  }

  /** What another tab was answered. */
  hear(data: unknown, at: string): void {
    if (isBefore(this.known, at)) this.take(data, at);
  }

  private take(data: unknown, at: string): void {
    this.known = at;
    this.set({ data, error: undefined });
  }

  set(change: Partial<Asked<unknown>>): void {
    const data = "data" in change ? kept(this.state.data, change.data) : this.state.data;
    if (data === this.state.data && change.error === this.state.error) return;
    this.state = { ...this.state, ...change, data };
    this.watchers.forEach((one) => one());
  }
}

const entries = new Map<string, Entry>();
hearAnswers(({ key, at, text }) => {
  const found = text === null ? undefined : entries.get(` ${key}`);
  if (found?.watchers.size && text !== null) found.hear(JSON.parse(text), at);
});

function entry(path: string, accept?: string): Entry {
  const key = `${accept ?? ""} ${path}`;
  const known = entries.get(key) ?? new Entry(path, accept);
  entries.delete(key); // the last ones asked for stand at the end
  entries.set(key, known);
  for (const [old, one] of entries) {
    if (entries.size <= KEPT_MAX) break;
    if (!one.watchers.size) entries.delete(old);
  }
  return known;
}

const NOTHING: Asked<never> = { data: undefined, error: undefined, again: () => undefined };
const still = (): (() => void) => () => undefined;

/** The answer to GET `path`; null asks for nothing. `concerns` says which events may change it. */
export function useQuery<T>(path: string | null, concerns?: Concerns, accept?: string): Asked<T> {
  const found = path === null ? null : entry(path, accept);
  const state = useSyncExternalStore(
    found ? (changed) => (found.watchers.add(changed), () => found.watchers.delete(changed)) : still,
    () => found?.state ?? NOTHING,
  );
  useEffect(() => found?.look(), [found]);
  useEffect(() => {
    if (!found || !concerns) return undefined;
    const quiet = listen((event) => concerns(event) && found.soon());
    const away = onReturn(() => found.ask());
    return () => (quiet(), away());
  }, [found, concerns]);
  return state as Asked<T>;
}

/** What a change has answered stands for what a look would. */
export function put(path: string, data: unknown): void {
  entry(path).set({ data, error: undefined });
}

/** Whoever looks at a path that begins so asks again. */
export function again(...begins: string[]): void {
  for (const [key, one] of entries) {
    const path = key.slice(key.indexOf(" ") + 1);
    if (begins.some((begin) => path.startsWith(begin)) && one.watchers.size) one.ask();
  }
}

export const everything: Concerns = () => true;

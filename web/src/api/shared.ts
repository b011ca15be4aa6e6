/**
 * Tabs of one browser that look at the same: the first to ask tells the others what it was answered.
 * Else every event would be as many questions as there are tabs, on the few connections that a browser
 * keeps to a server.
 *
 * Rules
 * 1. Only what an event has made old is shared. Who opens a view, or has changed something, asks.
 * 2. Who asks is settled by a lock, which ends with its tab. Who waits does so for HEARD_MS at most.
 * 3. An answer carries the position of the last event before it was asked for: whoever has heard of a
 *    later one asks again. Where tabs cannot share (plain http from another machine) each asks.
 */
const NAME = "handrail-answers";
const HEARD_MS = 1_000;
const LARGEST = 200_000; // characters: more is not copied into every tab

/** `text` is null where everybody has to ask: it was too much, or did not work. */
export interface Said {
  key: string;
  at: string;
  text: string | null;
}

const channel = "BroadcastChannel" in window && "locks" in navigator ? new BroadcastChannel(NAME) : null;
const waiting = new Map<string, Set<(said: Said) => void>>();

/** From now on, whatever another tab was answered. */
export function hearAnswers(hears: (said: Said) => void): void {
  channel?.addEventListener("message", ({ data: said }: MessageEvent<Said>) => {
    hears(said);
    waiting.get(said.key)?.forEach((one) => one(said));
  });
}

/** The answer to what was asked as of that position: told by another tab, or asked here. */
export async function once(key: string, at: string, ask: () => Promise<string>): Promise<string> {
  if (!channel || !at) return ask();
  const told = await navigator.locks.request(`${NAME} ${key}`, { ifAvailable: true }, (lock) => (lock ? tell(channel, key, at, ask) : heard(key, at)));
  return told ?? tell(channel, key, at, ask);
}

async function tell(to: BroadcastChannel, key: string, at: string, ask: () => Promise<string>): Promise<string> {
  let text: string | null = null;
  try {
    text = await ask();
    return text;
  } finally {
    to.postMessage({ key, at, text: text && text.length <= LARGEST ? text : null } satisfies Said);
  }
}

/** What the tab was answered that asks just now; null if that is nothing, or from before. */
function heard(key: string, at: string): Promise<string | null> {
  return new Promise((resolve) => {
    const all = waiting.get(key) ?? new Set();
    waiting.set(key, all);
    const go = (said: Said | null): void => {
      clearTimeout(timer);
      all.delete(go);
      if (!all.size) waiting.delete(key);
      resolve(said && !isBefore(said.at, at) ? said.text : null);
    };
    const timer = setTimeout(go, HEARD_MS, null);
    all.add(go);
  });
}

/** Whether the first of two positions ("COMMIT-EVENT") is before the other; none is before any. */
export function isBefore(one: string, other: string): boolean {
  const [a = 0, b = 0] = one.split("-").map(Number);
  const [c = 0, d = 0] = other.split("-").map(Number);
  return a < c || (a === c && b < d);
}

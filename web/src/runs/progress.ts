/** How far the runs of a list have come, and what they cost: asked for those in sight, in one go. */
import { useEffect, useState } from "react";
import { get, path } from "../api/client";
import { listen, onReturn } from "../api/live";
import type { Page, RunSummary } from "../api/schema";

const AGAIN_MS = 250; // a row that is only scrolled past is not asked for
const IDS_MAX = 100; // of one question
const KEPT_MAX = 2_000;

type Known = ReadonlyMap<string, RunSummary | undefined>; // without a summary: nobody knows that run

class Sight {
  private known: Known = new Map();
  private inSight: readonly string[] = [];
  private readonly old = new Set<string>(); // known, and changed since
  private timer: ReturnType<typeof setTimeout> | undefined;
  private busy = false;

  constructor(private readonly show: (known: Known) => void) {}

  see(ids: readonly string[]): void {
    this.inSight = ids;
    this.soon();
  }

  changed(id: string | undefined): void {
    if (id === undefined || !this.known.has(id)) return;
    this.old.add(id);
    if (this.inSight.includes(id)) this.soon();
  }

  allChanged(): void {
    for (const id of this.known.keys()) this.old.add(id);
    this.soon();
  }

  close(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private soon(): void {
    this.timer ??= setTimeout(() => void this.ask(), AGAIN_MS);
  }

  private async ask(): Promise<void> {
    this.timer = undefined;
    const ids = this.inSight.filter((id) => !this.known.has(id) || this.old.has(id)).slice(0, IDS_MAX);
    if (this.busy || !ids.length) return;
    this.busy = true;
    ids.forEach((id) => this.old.delete(id));
    try {
      const page = await get<Page<RunSummary>>(path("/executions/summaries", { ids: ids.join() }));
      const found = new Map(page.items.map((one) => [one.id, one]));
      const all: [string, RunSummary | undefined][] = [...this.known, ...ids.map((id): [string, RunSummary | undefined] => [id, found.get(id)])];
      this.known = new Map(all.slice(-KEPT_MAX));
      this.show(this.known);
      this.soon(); // whatever came into sight meanwhile
    } catch {
      ids.forEach((id) => this.old.add(id)); // the list itself says what is wrong, and when it is over
    } finally {
      this.busy = false;
    }
  }
}

export function useProgress(inSight: readonly string[]): Known {
  const [known, setKnown] = useState<Known>(new Map());
  const [sight] = useState(() => new Sight(setKnown));
  const key = inSight.join();
  useEffect(() => {
    const quiet = listen((event) => sight.changed(event.execution_id));
    const away = onReturn(() => sight.allChanged());
    return () => (sight.close(), quiet(), away());
  }, [sight]);
  useEffect(() => sight.see(key ? key.split(",") : []), [sight, key]);
  return known;
}

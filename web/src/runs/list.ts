/**
 * The list of runs, page by page as it is scrolled. What is shown changes in place; runs that are new
 * wait until they are asked for, so that nothing moves under the pointer.
 */
import { useCallback, useEffect, useRef, useState } from "react";
import { get, path } from "../api/client";
import { listen, onReturn } from "../api/live";
import type { Page, RunItem } from "../api/schema";
import type { Filter } from "../logic/filters";
import { merged } from "../logic/merge";

const PAGE = 200;
const AGAIN_MS = 500;

interface Listed {
  asked: string;
  items: RunItem[];
  waiting: RunItem[]; // new ones, behind the button
  cursor: string | null;
  loaded: boolean;
  error?: Error;
}

export function useRunList(filter: Filter) {
  const asked = path("/executions", { ...filter, limit: PAGE });
  const nothing: Listed = { asked, items: [], waiting: [], cursor: null, loaded: false };
  const [held, setHeld] = useState<Listed>(nothing);
  const state = held.asked === asked ? held : { ...nothing, items: held.items, loaded: held.loaded };
  const busy = useRef(false);

  const look = useCallback(() => {
    get<Page<RunItem>>(asked)
      .then((page) => setHeld((old) => taken(old, asked, page)))
      .catch((error: Error) => setHeld((old) => ({ ...old, asked, loaded: true, error })));
  }, [asked]);

  useEffect(() => {
    look();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const soon = (): void => {
      timer ??= setTimeout(() => {
        timer = undefined;
        look();
      }, AGAIN_MS);
    };
    const quiet = listen(soon);
    const away = onReturn(soon);
    return () => (clearTimeout(timer), quiet(), away());
  }, [look]);

  const { cursor } = state;
  const more = useCallback(() => {
    if (!cursor || busy.current) return;
    busy.current = true;
    get<Page<RunItem>>(`${asked}&cursor=${encodeURIComponent(cursor)}`)
      .then((page) => setHeld((old) => (old.asked === asked && old.cursor === cursor ? { ...old, items: [...old.items, ...page.items], cursor: page.next_cursor } : old)))
      .catch(() => undefined) // asked again at the next scroll
      .finally(() => (busy.current = false));
  }, [asked, cursor]);

  const show = useCallback(() => setHeld((old) => ({ ...old, items: [...old.waiting, ...old.items], waiting: [] })), []);
  return { items: state.items, fresh: state.waiting.length, loaded: state.loaded, error: state.error, done: !cursor, more, show, again: look };
}

function taken(old: Listed, asked: string, page: Page<RunItem>): Listed {
  if (old.asked !== asked || !old.items.length)
    return { asked, items: page.items, waiting: [], cursor: page.next_cursor, loaded: true };
  const { items, waiting } = merged(old.items, old.waiting, page.items, page.next_cursor === null);
  return { ...old, items, waiting, error: undefined, loaded: true };
}

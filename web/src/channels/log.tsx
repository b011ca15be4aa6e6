/** What was said, in order, as it is said. Who reads further up is not moved; new lines wait below. */
import { memo, useEffect, useLayoutEffect, useRef, useState } from "react";
import { get, path } from "../api/client";
import { listen, onReturn } from "../api/live";
import type { Concerns } from "../api/query";
import type { Message, Page } from "../api/schema";
import { initials, joined, lineOf } from "../logic/channels";
import { clock, exact } from "../logic/time";
import { Skeleton, Trouble } from "../ui/atoms";
import { Markdown } from "../ui/markdown";
import { base } from "./conversation";

const PAGE = 200;
const PAGES_MAX = 20;
const LINES_MAX = 1_000; // unless somebody has asked for earlier ones
const WINDOW = 500; // events of the channel, of which some are lines
const NEAR = 60;

interface Held {
  lines: Message[];
  from: number; // everything after this position is here
  last: number;
}

export function Log({ id, position, concerns }: { id: string; position: number; concerns: Concerns }) {
  const { held, error, earlier, again } = useLog(id, position, concerns);
  const box = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const [seen, setSeen] = useState(0);
  const lines = held?.lines;
  const last = lines?.at(-1)?.id ?? 0;
  const down = (): void => {
    box.current?.scrollTo({ top: box.current.scrollHeight });
    setSeen(last);
  };
  useLayoutEffect(() => {
    if (follows.current) down();
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [last]);
  const fresh = lines?.filter((one) => one.id > seen).length ?? 0;
  return (
    <div className="log">
      <div
        className="log-lines"
        ref={box}
        tabIndex={0}
        role="log"
        aria-label="What was said"
        onScroll={({ currentTarget: it }) => {
          follows.current = it.scrollHeight - it.scrollTop - it.clientHeight < NEAR;
          if (follows.current) setSeen(last);
        }}
      >
        {error && <Trouble error={error} again={again} />}
        {!lines && !error && <Skeleton lines={6} />}
        {held && held.from > 0 && (
          <button type="button" className="plain earlier" onClick={earlier}>
            Earlier
          </button>
        )}
        {lines && !lines.length && held?.from === 0 && <p className="faint">Nobody has said anything yet.</p>}
        {lines?.map((one, n) => (
          <Line key={one.id} line={one} follows={lines[n - 1]?.author === one.author && lines[n - 1]?.kind === one.kind && !one.to} />
        ))}
      </div>
      {!follows.current && fresh > 0 && (
        <button type="button" className="fresh" onClick={down}>
          {fresh} new
        </button>
      )}
    </div>
  );
}

const Line = memo(function Line({ line, follows }: { line: Message; follows: boolean }) {
  if (line.kind === "notice") {
    return (
      <p className="line-notice">
        {line.text} <time title={exact(line.at)}>{clock(line.at)}</time>
      </p>
    );
  }
  return (
    <article className={`line ${line.human ? "line-person" : "line-agent"}${follows ? " line-follows" : ""}`}>
      <span className="face" aria-hidden="true">
        {initials(line.author)}
      </span>
      <div>
        <header>
          <strong>{line.author}</strong>
          <span className="faint">
            {line.human ? "person" : "agent"}
            {line.to ? ` to ${line.to}` : ""}
          </span>
          <time className="faint" dateTime={line.at} title={exact(line.at)}>
            {clock(line.at)}
          </time>
        </header>
        <Markdown text={line.text} />
      </div>
    </article>
  );
});

/** The last lines, and those that come; earlier ones when they are asked for. */
function useLog(id: string, position: number, concerns: Concerns) {
  const [held, setHeld] = useState<Held>();
  const [error, setError] = useState<Error>();
  const now = useRef<Held | undefined>(undefined);
  const missed = useRef(false); // something was said before the first answer was here
  const first = useRef(Math.max(0, position - WINDOW));

  const take = (came: readonly Message[], from: number, all = false): void => {
    const old = now.current ?? { lines: [], from, last: from };
    const known = joined(old.lines, came);
    const lines = all ? known : known.slice(-Math.max(LINES_MAX, old.lines.length));
    const cut = lines.length < known.length ? (lines[0]?.id ?? 1) - 1 : 0;
    now.current = { lines, from: Math.max(cut, Math.min(old.from, from)), last: Math.max(old.last, came.at(-1)?.id ?? 0) };
    setHeld(now.current);
    setError(undefined);
  };
  const fetch = (after: number, before: number): void =>
    void read(id, after, before)
      .then((came) => {
        take(came, after, before !== Infinity);
        if (missed.current) look();
        missed.current = false;
      })
      .catch((problem: Error) => setError(problem));
  const look = (): void => fetch(now.current?.last ?? first.current, Infinity);
  const earlier = (): void => {
    const from = now.current?.from ?? 0;
    fetch(Math.max(0, from - WINDOW), from);
  };
  useEffect(() => {
    look();
    const quiet = listen((event) => {
      const line = concerns(event) && lineOf(event);
      if (line && now.current) take([line], now.current.from);
      else if (line) missed.current = true;
    });
    const away = onReturn(look);
    return () => (quiet(), away());
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [id, concerns]);
  return { held, error, earlier, again: look };
}

/** Lines after that position, up to the other. */
async function read(id: string, after: number, before: number): Promise<Message[]> {
  const found: Message[] = [];
  let from = after;
  for (let n = 0; n < PAGES_MAX; n++) {
    const page = await get<Page<Message>>(path(`${base(id)}/messages`, { after: from, limit: PAGE }));
    found.push(...page.items.filter((one) => one.id <= before));
    from = page.items.at(-1)?.id ?? from;
    if (page.next_cursor === null || from >= before) break;
  }
  return found;
}

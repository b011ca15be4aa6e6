/** Who did what, and why; and whether the record of it is unaltered. */
import { useCallback, useEffect, useState } from "react";
import { get, path } from "../api/client";
import type { Checked, HistoryEvent, Page } from "../api/schema";
import { told } from "../logic/replay";
import { setQuery, useRoute } from "../route";
import { Empty, Id, Link, Moment, PageHead, Skeleton, Trouble } from "../ui/atoms";

const PAGE = 100;
const EMPTY_MAX = 20; // pages that may be empty and not the last

export function Audit() {
  const { query } = useRoute();
  const people = query.get("all") !== "1";
  const actor = query.get("actor") ?? "";
  const [held, setHeld] = useState<{ asked: string; items: HistoryEvent[]; cursor: string | null }>();
  const [error, setError] = useState<Error>();
  const asked = path("/audit", { people, actor, limit: PAGE });
  const more = useCallback(
    async (cursor: string | null): Promise<void> => {
      try {
        const found: HistoryEvent[] = [];
        let next: string | null = cursor ?? "";
        for (let n = 0; n < EMPTY_MAX && next !== null && found.length < PAGE / 2; n++) {
          const page: Page<HistoryEvent> = await get(next ? `${asked}&cursor=${encodeURIComponent(next)}` : asked);
          found.push(...page.items);
          next = page.next_cursor;
        }
        setHeld((old) => ({ asked, items: cursor && old?.asked === asked ? [...old.items, ...found] : found, cursor: next }));
        setError(undefined);
      } catch (problem) {
        setError(problem as Error);
      }
    },
    [asked],
  );
  useEffect(() => void more(null), [more]);
  const items = held?.asked === asked ? held.items : undefined;
  return (
    <>
      <PageHead title="Audit">
        <Verify />
      </PageHead>
      <div className="filters" role="group" aria-label="Filters">
        <button type="button" aria-pressed={people} onClick={() => setQuery("all", "")}>
          people and endings
        </button>
        <button type="button" aria-pressed={!people} onClick={() => setQuery("all", "1")}>
          everything
        </button>
        <input type="search" aria-label="By whom" placeholder="by whom" defaultValue={actor} onKeyDown={(event) => event.key === "Enter" && setQuery("actor", event.currentTarget.value.trim())} />
      </div>
      {error && <Trouble error={error} again={() => void more(null)} />}
      {!items && !error && <Skeleton />}
      {items && !items.length && <Empty title="Nothing on record">Every answer, override and ending stands here, by whom and why.</Empty>}
      {items && items.length > 0 && (
        <div className="panel scroll-x" tabIndex={0}>
          <table className="audit">
            <thead>
              <tr>
                <th>When</th>
                <th>Who</th>
                <th>What</th>
                <th>Why</th>
                <th>Where</th>
              </tr>
            </thead>
            <tbody>
              {items.map((one) => (
                <tr key={`${one.execution_id ?? one.stream}-${one.seq}`}>
                  <td>
                    <Moment at={one.at} />
                  </td>
                  <td>{one.actor}</td>
                  <td>
                    <code>{one.type}</code>
                  </td>
                  <td className="why">{told(one)}</td>
                  <td>
                    <Where event={one} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {held?.cursor && (
        <p>
          <button type="button" onClick={() => void more(held.cursor)}>
            More
          </button>
        </p>
      )}
    </>
  );
}

const CHANNEL = "channel:";

/** The run or the channel that it happened in. */
function Where({ event }: { event: HistoryEvent }) {
  const { execution_id: run, stream = "" } = event;
  if (run)
    return (
      <>
        <Link to={`/runs/${run}`}>run</Link> <Id id={run} />
      </>
    );
  if (!stream.startsWith(CHANNEL)) return <span className="faint">{stream}</span>;
  const channel = stream.slice(CHANNEL.length);
  return <Link to={`/channels/${encodeURIComponent(channel)}`}>{channel}</Link>;
}

/** Every hash again: asked for, since it reads the whole record. */
function Verify() {
  const [found, setFound] = useState<Checked>();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  const check = (): void => {
    setBusy(true);
    setError(undefined);
    get<Checked>("/audit/verify")
      .then(setFound)
      .catch((problem: Error) => setError(problem))
      .finally(() => setBusy(false));
  };
  return (
    <div className="verify" role="status">
      {found && (
        <span className={`state state-${found.ok ? "done" : "stuck"}`}>
          {found.ok ? "✓ Unaltered" : `✕ ${found.findings.length} findings`}
        </span>
      )}
      {found && (
        <span className="faint">
          {found.runs} runs, {found.entries} entries, head <Id id={found.head} />
        </span>
      )}
      {error && <span className="failure">{error.message}</span>}
      <button type="button" onClick={check} disabled={busy}>
        {busy ? "Verifying…" : found ? "Verify again" : "Verify the record"}
      </button>
      {found && !found.ok && <span className="failure">{found.findings[0]?.message}</span>}
    </div>
  );
}

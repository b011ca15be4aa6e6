/** All runs, the newest first, filtered by words; only what is seen is drawn. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useEffect, useRef, useState } from "react";
import { useQuery } from "../api/query";
import type { DefinitionItem, Page, RunItem, RunSummary } from "../api/schema";
import { read, STATUSES, toggled } from "../logic/filters";
import { duration } from "../logic/time";
import { agentName, stateOf } from "../logic/words";
import { setQuery, useRoute } from "../route";
import { Bar, Empty, Link, Moment, PageHead, Skeleton, StateBadge, Trouble } from "../ui/atoms";
import { useRunList } from "./list";
import { NewRun } from "./new_run";
import { useProgress } from "./progress";

const ROW = 56;
const FILTERS: [string, string][] = [...STATUSES.slice(0, 3), "done", "partial", "stuck", "constraint", "closed"].map((one) => ["status", one]);

export function Runs() {
  const { query } = useRoute();
  const text = query.get("q") ?? "";
  const { filter, wrong } = read(text, Date.now());
  const list = useRunList(filter);
  const definitions = useQuery<Page<DefinitionItem>>("/workflows?limit=200");
  const [making, setMaking] = useState(false);
  return (
    <div className="runs">
      <PageHead title="Runs">
        <button type="button" className="primary" onClick={() => setMaking(true)}>
          New run
        </button>
      </PageHead>
      <div className="filters" role="group" aria-label="Filters">
        {FILTERS.map(([name, value]) => (
          <button key={value} type="button" aria-pressed={text.split(" ").includes(`${name}:${value}`)} onClick={() => setQuery("q", toggled(text, name, value))}>
            {value}
          </button>
        ))}
        <select aria-label="Definition" value={filter.workflow_id ?? ""} onChange={(event) => setQuery("q", withWorkflow(text, event.target.value))}>
          <option value="">every definition</option>
          {definitions.data?.items.map((one) => (
            <option key={one.id} value={one.id}>
              {one.name}
            </option>
          ))}
        </select>
        {text && (
          <button type="button" className="plain" onClick={() => setQuery("q", "")}>
            Clear
          </button>
        )}
      </div>
      {wrong.length > 0 && (
        <p className="notice">
          Not understood: {wrong.join(" ")}. There are status:{STATUSES[1]}, workflow:ID, since:24h, ended:2026-01-31, and plain words for the title.
        </p>
      )}
      {list.error && !list.items.length ? (
        <Trouble error={list.error} again={list.again} />
      ) : !list.loaded ? (
        <Skeleton lines={10} />
      ) : list.items.length ? (
        <Rows list={list} />
      ) : text ? (
        <Empty title="No run fits">
          <button type="button" onClick={() => setQuery("q", "")}>
            Show all
          </button>
        </Empty>
      ) : (
        <Empty title="Nothing has run yet" command="handrail run helpdesk --title 'VPN drops every hour'">
          Begin one with “New run”, or from a terminal:
        </Empty>
      )}
      {making && <NewRun close={() => setMaking(false)} />}
    </div>
  );
}

function withWorkflow(text: string, id: string): string {
  const others = text.split(/\s+/).filter((one) => one && !one.startsWith("workflow:"));
  return [...(id ? [`workflow:${id}`] : []), ...others].join(" ");
}

function Rows({ list }: { list: ReturnType<typeof useRunList> }) {
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count: list.items.length, getScrollElement: () => scroller.current, estimateSize: () => ROW, overscan: 8 });
  const seen = rows.getVirtualItems();
  const lastSeen = seen.at(-1)?.index ?? 0;
  const { more, items } = list;
  const made = useProgress(seen.flatMap((row) => items[row.index]?.id ?? []));
  useEffect(() => {
    if (lastSeen > items.length - 40) more();
  }, [lastSeen, items.length, more]);
  return (
    <>
      {list.fresh > 0 && (
        <button
          type="button"
          className="fresh"
          onClick={() => {
            list.show();
            scroller.current?.scrollTo({ top: 0 });
          }}
        >
          {list.fresh} new
        </button>
      )}
      <div className="rows" ref={scroller} tabIndex={0} role="group" aria-label={`${list.items.length}${list.done ? "" : " or more"} runs`}>
        <div className="rows-head" aria-hidden="true">
          <span>State</span>
          <span>Bead</span>
          <span>Where</span>
          <span>Steps</span>
          <span className="right">Cost</span>
          <span className="right">Begun</span>
        </div>
        <ul style={{ height: rows.getTotalSize() }}>
          {seen.map((row) => {
            const run = list.items[row.index];
            return (
              run && (
                <li key={run.id} style={{ transform: `translateY(${row.start}px)` }}>
                  <Row run={run} made={made.get(run.id)} />
                </li>
              )
            );
          })}
        </ul>
      </div>
    </>
  );
}

const Row = memo(function Row({ run, made }: { run: RunItem; made: RunSummary | undefined }) {
  const going = run.status !== "ended";
  const used = made?.total_steps ?? 0;
  const most = used + (made?.remaining ?? 0);
  return (
    <Link to={`/runs/${run.id}`} className="row">
      <StateBadge state={stateOf(run)} />
      <span className="row-title">
        <strong className="cut">{run.title}</strong>
        <span className="faint cut">
          {run.workflow_id} v{run.workflow_version}
        </span>
      </span>
      <span className="cut">{going ? agentName(run.current_node_id ?? "") : (run.stop_rule ?? "").replaceAll("_", " ")}</span>
      <span className="row-bar">
        {going && made && <Bar used={used} limit={most} label={`${used} of at most ${most}`} />}
        <small className="faint">{progress(run, made)}</small>
      </span>
      <span className="right faint">{made?.usage.cost ? made.usage.cost.toFixed(2) : "–"}</span>
      <span className="right faint">
        <Moment at={run.created_at} />
      </span>
    </Link>
  );
});

/** "4 of at most 73 steps", or what it took. */
function progress(run: RunItem, made: RunSummary | undefined): string {
  if (run.status === "ended") return made ? `${counted(made.total_steps)} in ${duration(run.duration)}` : duration(run.duration);
  return made ? `${made.total_steps} of ${(made.total_steps + made.remaining).toLocaleString()} at most` : "…";
}

const counted = (steps: number): string => `${steps.toLocaleString()} ${steps === 1 ? "step" : "steps"}`;

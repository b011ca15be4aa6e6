/** How well it goes: charts of the last days with their targets, and a line for every definition. */
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { get, path } from "../api/client";
import { useQuery } from "../api/query";
import type { DefinitionItem, Figures, Page, RunItem, WorkflowMetrics } from "../api/schema";
import { endedOn } from "../logic/filters";
import { days, midnights, summed, type Day } from "../logic/series";
import { duration } from "../logic/time";
import { go, setQuery, useRoute } from "../route";
import { Bar, Empty, Link, Loaded, PageHead, Skeleton, Trouble } from "../ui/atoms";

const Chart = lazy(() => import("../ui/chart"));
const DAYS = 14;
const ENDED_MAX = 500;
const POINTS_MAX = 4;

/** What good looks like: docs/requirements.md, L15. */
const TARGETS = { seconds: 300, success: 90, escalation: 10, cycles: 1.5 };

export function FiguresView() {
  const { query } = useRoute();
  const workflow = query.get("workflow") ?? "";
  const definitions = useQuery<Page<DefinitionItem>>("/workflows?limit=200");
  const all = useQuery<WorkflowMetrics>(path("/metrics/workflows", { workflow_id: workflow }), ended);
  return (
    <>
      <PageHead title="Metrics">
        <select aria-label="Definition" value={workflow} onChange={(event) => setQuery("workflow", event.target.value)}>
          <option value="">every definition</option>
          {definitions.data?.items.map((one) => (
            <option key={one.id} value={one.id}>
              {one.name}
            </option>
          ))}
        </select>
      </PageHead>
      <Loaded of={all}>
        {({ items }) =>
          items.length ? (
            <>
              <Charts workflow={workflow} />
              <Stops workflow={workflow} />
              <Definitions items={items} />
              <Retries items={items} />
            </>
          ) : (
            <Empty title="No run has ended yet" command="handrail run helpdesk --title 'VPN drops every hour'">
              Figures are of runs that have ended:
            </Empty>
          )
        }
      </Loaded>
    </>
  );
}

const ended = (event: { type: string }): boolean => event.type === "ended";

function Charts({ workflow }: { workflow: string }) {
  const { since, error } = useDays(workflow);
  const times = useMemo(() => midnights(DAYS, Date.now()), []);
  if (error) return <Trouble error={error} />;
  if (!since) return <Skeleton lines={8} />;
  const of = (figure: (day: Day) => number | null): (number | null)[] => since.map((day) => (day.runs ? figure(day) : null));
  const runsOf = (n: number): string => `/runs?q=${encodeURIComponent(`${workflow ? `workflow:${workflow} ` : ""}${endedOn(times[n] ?? new Date())}`)}`;
  const charts: { title: string; values: (number | null)[]; target?: number; goal?: string; unit: string; bars?: boolean }[] = [
    { title: "Runs that ended", values: since.map((day) => day.runs), unit: "", bars: true },
    { title: "Success", values: of((day) => (100 * day.succeeded) / day.runs), target: TARGETS.success, goal: "at least 90 %", unit: " %" },
    { title: "Mean time to resolution", values: of((day) => day.seconds / day.runs), target: TARGETS.seconds, goal: "at most 5 min", unit: " s" },
    { title: "Escalations", values: of((day) => (100 * day.escalated) / day.runs), target: TARGETS.escalation, goal: "at most 10 %", unit: " %" },
    { title: "Cost a day", values: since.map((day) => day.cost), unit: "", bars: true },
    { title: "Tokens a day", values: since.map((day) => day.tokens), unit: "", bars: true },
  ];
  return (
    <div className="charts">
      {charts.map((one) => (
        <figure key={one.title} className="panel">
          <figcaption>
            {one.title} {one.goal && <span className="faint">target: {one.goal}</span>}
          </figcaption>
          {one.bars && !one.values.some(Boolean) ? (
            <p className="chart chart-empty faint">Nothing in the last {DAYS} days.</p>
          ) : (
            <Suspense fallback={<Skeleton lines={3} />}>
              <Chart times={times} values={one.values} target={one.target} unit={one.unit} bars={one.bars ?? false} title={one.title} open={(n) => go(runsOf(n))} />
            </Suspense>
          )}
          <Points times={times} values={one.values} unit={one.unit} runsOf={runsOf} title={one.title} />
        </figure>
      ))}
    </div>
  );
}

interface PointsProps {
  title: string;
  times: Date[];
  values: (number | null)[];
  unit: string;
  runsOf: (n: number) => string;
}

/** The points of a chart as links to the runs behind them, also without a mouse. */
function Points({ title, times, values, unit, runsOf }: PointsProps) {
  const points = times.map((day, n) => ({ day, n, value: values[n] })).filter((one) => one.value);
  if (!points.length) return null;
  return (
    <ul className="points" aria-label={`${title}: the runs of each day`}>
      {points.slice(-POINTS_MAX).map(({ day, n, value }) => (
        <li key={n}>
          <Link to={runsOf(n)}>
            {day.toLocaleDateString([], { day: "numeric", month: "short" })}: {Math.round((value ?? 0) * 100) / 100}
            {unit}
          </Link>
        </li>
      ))}
    </ul>
  );
}

/** Every day's figures, from what the API sums up since each midnight. */
function useDays(workflow: string): { since?: Day[]; error?: Error } {
  const [found, setFound] = useState<{ since?: Day[]; error?: Error }>({});
  useEffect(() => {
    let gone = false;
    const asked = midnights(DAYS, Date.now()).map((day) => get<WorkflowMetrics>(path("/metrics/workflows", { workflow_id: workflow, since: day.toISOString() })));
    Promise.all(asked)
      .then((answers) => !gone && setFound({ since: days(answers.map((one) => summed(one.items))) }))
      .catch((error: Error) => !gone && setFound({ error }));
    return () => {
      gone = true;
    };
  }, [workflow]);
  return found;
}

/** By which rules runs ended. */
function Stops({ workflow }: { workflow: string }) {
  const runs = useQuery<Page<RunItem>>(path("/executions", { status: "ended", workflow_id: workflow, limit: ENDED_MAX }), ended);
  const counts = new Map<string, number>();
  for (const one of runs.data?.items ?? []) counts.set(one.stop_rule ?? "", (counts.get(one.stop_rule ?? "") ?? 0) + 1);
  const most = Math.max(1, ...counts.values());
  return (
    <section className="panel">
      <h2>
        What ended runs <span className="faint">the last {runs.data?.items.length ?? 0}</span>
      </h2>
      <ul className="meters">
        {[...counts].sort((a, b) => b[1] - a[1]).map(([rule, count]) => (
          <li key={rule}>
            <span>{rule.replaceAll("_", " ")}</span>
            <span className="right">{count}</span>
            <Bar used={count} limit={most * 1.34} label={`${rule}: ${count}`} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function Definitions({ items }: { items: Figures[] }) {
  return (
    <section className="panel scroll-x" tabIndex={0}>
      <h2>By definition</h2>
      <table>
        <thead>
          <tr>
            <th>Definition</th>
            <th className="right">Runs</th>
            <th className="right">Success</th>
            <th className="right">Escalated</th>
            <th className="right">Median</th>
            <th className="right">90 %</th>
            <th className="right">99 %</th>
            <th className="right">Tokens a run</th>
            <th className="right">Cost a run</th>
          </tr>
        </thead>
        <tbody>
          {items.map((one) => (
            <tr key={one.workflow_id}>
              <td>
                <Link to={`/runs?q=${encodeURIComponent(`workflow:${one.workflow_id}`)}`}>{one.workflow_id}</Link>
              </td>
              <td className="right">{one.runs}</td>
              <Judged good={one.success_rate * 100 >= TARGETS.success}>{(one.success_rate * 100).toFixed(0)} %</Judged>
              <Judged good={one.escalation_rate * 100 <= TARGETS.escalation}>{(one.escalation_rate * 100).toFixed(0)} %</Judged>
              <Judged good={one.time_to_resolution.p50 <= TARGETS.seconds}>{duration(one.time_to_resolution.p50)}</Judged>
              <td className="right">{duration(one.time_to_resolution.p90)}</td>
              <td className="right">{duration(one.time_to_resolution.p99)}</td>
              <td className="right">{Math.round(one.usage.tokens / one.runs).toLocaleString()}</td>
              <td className="right">{(one.usage.cost / one.runs).toFixed(2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Judged({ good, children }: { good: boolean; children: React.ReactNode }) {
  return (
    <td className={`right ${good ? "good" : "bad"}`}>
      {children} <span aria-label={good ? "within its target" : "beyond its target"}>{good ? "✓" : "✕"}</span>
    </td>
  );
}

function Retries({ items }: { items: Figures[] }) {
  return (
    <section className="panel scroll-x" tabIndex={0}>
      <h2>
        Dispatches a run needs, by node <span className="faint">target: {TARGETS.cycles}</span>
      </h2>
      <table>
        <thead>
          <tr>
            <th>Definition</th>
            <th>Node</th>
            <th className="right">On average</th>
            <th>Runs that needed 1, 2, 3, … dispatches</th>
          </tr>
        </thead>
        <tbody>
          {items.flatMap((one) =>
            Object.entries(one.dispatch_cycles).map(([node, mean]) => (
              <tr key={`${one.workflow_id}-${node}`}>
                <td>{one.workflow_id}</td>
                <td>{node}</td>
                <td className="right">{mean.toFixed(1)}</td>
                <td>
                  {Object.entries(one.retries[node] ?? {})
                    .map(([extra, runs]) => `${Number(extra) + 1}: ${runs}`)
                    .join(" · ")}
                </td>
              </tr>
            )),
          )}
        </tbody>
      </table>
    </section>
  );
}

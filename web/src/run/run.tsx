/** A run: where it is in one sentence, the graph, what it may still use, and everything that happened. */
import { lazy, Suspense, useMemo, useRef, useState } from "react";
import { path } from "../api/client";
import { useQuery, type Concerns } from "../api/query";
import type { Bead, DefinitionDocument, DefinitionView, Report, Run, Step, WholeRun, Why } from "../api/schema";
import { kept } from "../logic/kept";
import { standing, standingOf } from "../logic/replay";
import { ladderCounts } from "../logic/stops";
import { certificate, sentence, stateOf, withoutState } from "../logic/words";
import { duration } from "../logic/time";
import { setQuery, useRoute } from "../route";
import { Id, Link, Loaded, Moment, Skeleton, StateBadge, Tabs, useNow } from "../ui/atoms";
import { Icon } from "../ui/icons";
import { Context } from "./context";
import { Events } from "./events";
import { Files } from "./files";
import { Iterations } from "./iterations";
import { Meters } from "./meters";
import { Overrides } from "./overrides";
import { Replay, useStory } from "./replay";
import { ReportView } from "./report";
import { StopPanel } from "./stop";
import { Timeline } from "./timeline";

const graph = import("../graph/graph"); // on its way while the run is asked for
const GraphView = lazy(() => graph);
type Tab = "timeline" | "iterations" | "report" | "events" | "context" | "files";

export function RunView() {
  const { item } = useRoute();
  const concerns = useMemo<Concerns>(() => (event) => event.execution_id === item, [item]);
  const whole = useQuery<WholeRun>(`/executions/${item}/whole`, concerns);
  return (
    <Loaded of={whole} lines={12}>
      {(found) => <Shown whole={found} concerns={concerns} />}
    </Loaded>
  );
}

function Shown({ whole, concerns }: { whole: WholeRun; concerns: Concerns }) {
  const { run, bead, report, why } = whole;
  const definition = useQuery<DefinitionView>(path(`/workflows/${encodeURIComponent(run.workflow_id)}`, { version: run.workflow_version }));
  const document = definition.data?.definition as DefinitionDocument | undefined;
  const [replaying, setReplaying] = useState<number>();
  const story = useStory(run, replaying !== undefined);
  const at = useKept(replaying === undefined || !story ? standingOf(run, report.transitions) : standing(story, replaying));
  if (!definition.data && !definition.error) return <Skeleton lines={12} />; // else what is below the graph would jump
  return (
    <div className="run">
      <Head run={run} why={why} bead={bead} document={document} />
      <StopPanel run={run} steps={whole.steps} />
      <div className="run-above">
        <section className="panel run-graph" aria-label="Graph">
          {document ? (
            <Suspense fallback={<Skeleton lines={4} />}>
              <GraphView document={document} standing={at} attempts={run.attempts} counters={replaying === undefined ? run.loop_counters : undefined} />
            </Suspense>
          ) : (
            <Skeleton lines={4} />
          )}
          <Replay run={run} story={story} at={replaying} move={setReplaying} />
        </section>
        <aside className="run-side" aria-label="Limits">
          <Meters report={report} bound={definition.data?.bound} run={run} />
          {definition.data?.bound && (
            <section className="panel">
              <h2>Certificate</h2>
              <p>{certificate(definition.data.bound)}</p>
              {run.status !== "ended" && <p className="faint">Measure: {run.remaining.toLocaleString()} left.</p>}
            </section>
          )}
        </aside>
      </div>
      <Lower run={run} bead={bead} steps={whole.steps} report={report} concerns={concerns} />
    </div>
  );
}

/** The value as it was, as long as it is equal. */
function useKept<T>(value: T): T {
  const held = useRef(value);
  held.current = kept(held.current, value);
  return held.current;
}

function Head({ run, why, bead, document }: { run: Run; why: Why; bead: Bead; document: DefinitionDocument | undefined }) {
  const now = useNow();
  const asked = why.waiting.find((one) => one.code === "asked")?.hint.replace(/^answer /, "");
  const counts = ladderCounts(run);
  const seconds = run.ended_at ? run.duration : (now - Date.parse(run.created_at)) / 1000;
  return (
    <header className="run-head">
      <div className="run-title">
        <h1>{bead.title || "Run"}</h1>
        <Overrides run={run} document={document} />
      </div>
      <p className="sentence" role="status">
        <StateBadge state={stateOf(run)} />
        <span>{withoutState(sentence(run, why, document, now), stateOf(run))}</span>
        {asked && (
          <Link to={`/inbox/${asked}`} className="button primary">
            Answer
          </Link>
        )}
      </p>
      <p className="faint run-facts">
        <Link to={`/definitions/${encodeURIComponent(run.workflow_id)}`}>
          {run.workflow_id} v{run.workflow_version}
        </Link>
        <span>
          run <Id id={run.id} />
        </span>
        <span>
          begun <Moment at={run.created_at} />
          {bead.filed_by ? ` by ${bead.filed_by}` : ""}
        </span>
        {bead.due_at && (
          <span>
            due <Moment at={bead.due_at} />
          </span>
        )}
        <span>{duration(Math.max(0, seconds))}</span>
        <span>{run.total_steps} steps</span>
        {run.usage.tokens > 0 && <span>{run.usage.tokens.toLocaleString()} tokens</span>}
        {run.usage.cost > 0 && <span>cost {run.usage.cost.toFixed(2)}</span>}
        {counts && <span>{counts}</span>}
        {run.dry_run && <span>dry run: no rule ends it</span>}
        {run.phase && <span>phase {run.phase.replaceAll("_", " ")}</span>}
      </p>
      {run.warnings.length > 0 && (
        <details className="fold">
          <summary>
            <Icon name="diamond" /> {run.warnings.length} {run.warnings.length === 1 ? "warning" : "warnings"}
          </summary>
          <ul>
            {run.warnings.map((one, n) => (
              <li key={n}>
                {one.message} <span className="faint">step {one.step}</span>
              </li>
            ))}
          </ul>
        </details>
      )}
    </header>
  );
}

function Lower({ run, bead, steps, report, concerns }: { run: Run; bead: Bead; steps: Step[]; report: Report; concerns: Concerns }) {
  const { query } = useRoute();
  const tab = (query.get("tab") as Tab | null) ?? "timeline";
  const tabs: [Tab, string][] = [
    ["timeline", "Timeline"],
    ["iterations", run.iterations.length ? `Iterations ${run.iterations.length}` : "Iterations"],
    ["report", "Report"],
    ["events", "Events"],
    ["context", "Context"],
    ["files", "Files"],
  ];
  return (
    <section className="run-lower">
      <Tabs tabs={tabs} now={tab} choose={(to) => setQuery("tab", to === "timeline" ? "" : to)} />
      <div className="panel" role="tabpanel" aria-label={tab}>
        {tab === "timeline" && <Timeline steps={steps} acts={report.acts} />}
        {tab === "iterations" && <Iterations run={run} />}
        {tab === "report" && <ReportView run={run} concerns={concerns} />}
        {tab === "events" && <Events run={run} />}
        {tab === "context" && <Context bead={bead} />}
        {tab === "files" && <Files bead={bead} />}
      </div>
    </section>
  );
}

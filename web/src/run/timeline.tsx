/**
 * What happened, step by step: a lane for every agent, a line where one hands over to the next, and a
 * diamond where a person acted. A row opens to what was said, with its evidence and what it cost.
 */
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useMemo, useRef, useState } from "react";
import type { HumanAct, Step } from "../api/schema";
import { duration } from "../logic/time";
import { agentName, nodeTitle } from "../logic/words";
import { AgentText } from "../ui/agent_text";
import { Empty, Moment } from "../ui/atoms";

const ROW = 48;
const LANE = 22;
const PEOPLE = "people";

type Entry = { at: string; lane: string; step?: Step; act?: HumanAct };

export const Timeline = memo(function Timeline({ steps, acts }: { steps: Step[]; acts: HumanAct[] }) {
  const [open, setOpen] = useState<number>();
  const scroller = useRef<HTMLDivElement>(null);
  const entries = useMemo(() => inOrder(steps, acts), [steps, acts]);
  const lanes = useMemo(() => [...new Set(entries.map((one) => one.lane))], [entries]);
  const rows = useVirtualizer({
    count: entries.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW,
    overscan: 12,
    getItemKey: (n) => n,
  });
  if (!entries.length) return <Empty title="Nobody has taken a step yet">As soon as an agent takes the work, it stands here.</Empty>;
  const x = (lane: string): number => lanes.indexOf(lane) * LANE + LANE / 2;
  const chosen = open === undefined ? undefined : entries[open];
  return (
    <div className="timeline">
      <div className="lanes" ref={scroller} tabIndex={0} role="group" aria-label={`${entries.length} steps`}>
        <ol style={{ height: rows.getTotalSize() }}>
          {rows.getVirtualItems().map((row) => {
            const entry = entries[row.index] as Entry;
            const next = entries[row.index + 1];
            return (
              <li key={row.key} style={{ transform: `translateY(${row.start}px)`, height: ROW }}>
                <button type="button" aria-expanded={open === row.index} className={open === row.index ? "lane-row chosen" : "lane-row"} onClick={() => setOpen(open === row.index ? undefined : row.index)}>
                  <svg width={lanes.length * LANE} height={ROW} aria-hidden="true">
                    {lanes.map((lane) => (
                      <line key={lane} x1={x(lane)} x2={x(lane)} y1={0} y2={ROW} className="lane" />
                    ))}
                    {next && <path d={curve(x(entry.lane), x(next.lane))} className="handoff" />}
                    {row.index > 0 && <path d={tail(x((entries[row.index - 1] as Entry).lane), x(entry.lane))} className="handoff" />}
                    <Mark entry={entry} x={x(entry.lane)} />
                  </svg>
                  <Line entry={entry} />
                </button>
              </li>
            );
          })}
        </ol>
      </div>
      {chosen && <Detail entry={chosen} close={() => setOpen(undefined)} />}
    </div>
  );
});

const HALF = ROW / 2;
/** The two halves of one curve, from the middle of a row to the middle of the next. */
const curve = (from: number, to: number): string => {
  const middle = (from + to) / 2;
  return `M${from},${HALF} C${from},${(HALF + ROW) / 2} ${(from + middle) / 2},${(HALF + 3 * ROW) / 4} ${middle},${ROW}`;
};
const tail = (from: number, to: number): string => {
  const middle = (from + to) / 2;
  return `M${middle},0 C${(middle + to) / 2},${HALF / 4} ${to},${HALF / 2} ${to},${HALF}`;
};

function Mark({ entry, x }: { entry: Entry; x: number }) {
  if (entry.act) return <path d={`M${x},${HALF - 7} l7,7 l-7,7 l-7,-7 z`} className="mark mark-person" />;
  const outcome = entry.step?.outcome ?? "";
  const kind = outcome === "" ? "now" : /fail|lost|timed|fault|refus/.test(outcome) ? "bad" : "good";
  return <circle cx={x} cy={HALF} r={kind === "now" ? 6 : 5} className={`mark mark-${kind}`} />;
}

function Line({ entry }: { entry: Entry }) {
  const { step, act } = entry;
  if (act) {
    return (
      <span className="lane-text">
        <strong>
          {act.by || "A person"}: {act.act}
        </strong>
        <span className="faint cut">{act.reason}</span>
        <span className="faint right">
          <Moment at={act.at} />
        </span>
      </span>
    );
  }
  if (!step) return null;
  const to = step.result?.to;
  return (
    <span className="lane-text">
      <strong>
        {nodeTitle(undefined, step.place)}
        {to ? ` → ${nodeTitle(undefined, to)}` : ""}
        {step.attempt > 1 ? ` · attempt ${step.attempt}` : ""}
      </strong>
      <span className="faint cut">{step.outcome ? step.text || step.reason || step.outcome : "at work"}</span>
      <span className="faint right">{step.claimed_at && step.ended_at ? duration((Date.parse(step.ended_at) - Date.parse(step.claimed_at)) / 1000) : step.outcome ? "" : "…"}</span>
    </span>
  );
}

function Detail({ entry, close }: { entry: Entry; close: () => void }) {
  const { step, act } = entry;
  return (
    <section className="detail" aria-label="What was said">
      <button type="button" className="plain right" onClick={close}>
        Close
      </button>
      {act && (
        <>
          <h3>
            {act.by}: {act.act} {act.place && `at ${act.place}`}
          </h3>
          <p className="typed">{act.reason}</p>
        </>
      )}
      {step && <StepDetail step={step} />}
    </section>
  );
}

function StepDetail({ step }: { step: Step }) {
  const result = step.result;
  const evidence = result?.evidence;
  const checks = evidence?.checks ?? [];
  const files = Object.entries(evidence?.files ?? {});
  return (
    <>
      <h3>
        Step {step.n}: {step.place}, {step.outcome || "at work"}
      </h3>
      <p className="faint">
        {agentName(step.agent)} as {step.role}, attempt {step.attempt}, <Moment at={step.ended_at ?? step.claimed_at ?? step.offered_at} />
        {result?.usage?.tokens ? `, ${result.usage.tokens} tokens` : ""}
        {result?.usage?.cost ? `, cost ${result.usage.cost}` : ""}
      </p>
      {step.reason && <p>{step.reason}</p>}
      {(result?.text || step.text) && <AgentText text={result?.text || step.text} />}
      {checks.length > 0 && (
        <ul className="checks">
          {checks.map((check, n) => (
            <li key={n}>
              <code>{check.command}</code> {check.exit_code === 0 ? "✓ passed" : `✕ exit code ${check.exit_code}`}
              {check.stderr && <pre tabIndex={0}>{check.stderr}</pre>}
            </li>
          ))}
        </ul>
      )}
      {files.length > 0 && (
        <p>
          Files: {files.map(([name]) => name).join(", ")} {evidence?.measured && <span className="faint">(measured)</span>}
        </p>
      )}
      {result?.data && Object.keys(result.data).length > 0 && (
        <details className="fold">
          <summary>Data</summary>
          <pre tabIndex={0}>{JSON.stringify(result.data, null, 2)}</pre>
        </details>
      )}
    </>
  );
}

function inOrder(steps: Step[], acts: HumanAct[]): Entry[] {
  const of = (step: Step): string => step.claimed_at ?? step.offered_at ?? step.ended_at ?? "";
  const found: Entry[] = [
    ...steps.map((step): Entry => ({ at: of(step), lane: step.place, step })),
    ...acts.map((act): Entry => ({ at: act.at, lane: PEOPLE, act })),
  ];
  return found.sort((a, b) => a.at.localeCompare(b.at) || (a.step?.n ?? 0) - (b.step?.n ?? 0));
}

/** What the run has used of what it may, the nearest limit first. */
import type { Bound, Report, Run } from "../api/schema";
import { meters } from "../logic/meters";
import { Bar } from "../ui/atoms";

export function Meters({ report, bound, run }: { report: Report; bound: Bound | null | undefined; run: Run }) {
  const found = meters(report, bound, run.soft_rules);
  const used = found.filter((one) => one.used > 0);
  const others = found.filter((one) => one.used === 0);
  return (
    <section className="panel">
      <h2>Stop rules</h2>
      <ul className="meters">
        {used.map((one) => (
          <li key={one.rule + (one.detail ?? "")} className={one.fired ? "fired" : ""}>
            <span>
              {one.title}
              {one.detail && <small className="faint"> {one.detail}</small>}
            </span>
            <span className="right">{one.told}</span>
            <Bar used={one.used} limit={one.limit} label={`${one.title}: ${one.told}`} />
            {one.fired && <small className="fired-word">ended the run</small>}
          </li>
        ))}
      </ul>
      {others.length > 0 && (
        <ul className="meters-unused faint" aria-label="Nothing counted yet">
          {others.map((one) => (
            <li key={one.rule + (one.detail ?? "")}>
              <span>{one.title}</span>
              <span>{one.told}</span>
            </li>
          ))}
        </ul>
      )}
      {run.status !== "ended" && run.last_progress_step > 0 && (
        <p className="faint small">
          Last progress at step {run.last_progress_step} of {run.total_steps}.
        </p>
      )}
    </section>
  );
}

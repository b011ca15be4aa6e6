/** What the run has used of what it may, the nearest limit first. */
import type { Bound, Report, Run } from "../api/schema";
import { alsoWatched, meters } from "../logic/meters";
import { Bar, Skeleton } from "../ui/atoms";

export function Meters({ report, bound, run }: { report: Report | undefined; bound: Bound | null | undefined; run: Run }) {
  if (!report) return <Skeleton lines={5} />;
  const found = meters(report, bound);
  const others = alsoWatched(report);
  return (
    <section className="panel">
      <h2>Stop rules</h2>
      <ul className="meters">
        {found.map((one) => (
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
      {others && <p className="faint small">Also watched: {others}.</p>}
      {run.status !== "ended" && run.last_progress_step > 0 && (
        <p className="faint small">
          Last progress at step {run.last_progress_step} of {run.total_steps}.
        </p>
      )}
    </section>
  );
}

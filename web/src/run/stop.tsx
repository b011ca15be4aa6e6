/** Why a run stopped: the rule with its limit, and what the cited steps had in common, each beside what it was. */
import type { Run, Step } from "../api/schema";
import { citedEvents, effectCalls, type Cited } from "../logic/stops";
import { Icon } from "../ui/icons";

const SHOWN = 8;

export function StopPanel({ run, steps }: { run: Run; steps: Step[] }) {
  const stop = run.stop;
  if (!stop || (stop.limit === null && !stop.remedy && !stop.effects.length)) return null;
  const cited = citedEvents(run, steps);
  return (
    <section className="panel stop" aria-label="Why it stopped">
      <h2>Why it stopped</h2>
      <dl className="stop-facts">
        <Fact name="Rule">
          {stop.rule}
          {stop.also.length > 0 && <span className="faint">, and {stop.also.join(", ")}</span>}
        </Fact>
        {stop.code !== stop.rule && (
          <Fact name="Code">
            <code>{stop.code}</code>
          </Fact>
        )}
        {stop.profile && <Fact name="Profile">{stop.profile}</Fact>}
        {stop.limit !== null && (
          <Fact name="Limit">
            {stop.limit_name && <code>{stop.limit_name}</code>} {String(stop.limit)}, seen {String(stop.seen)}
          </Fact>
        )}
      </dl>
      {cited.length > 0 && (
        <>
          <h3>What was alike</h3>
          <Alike cited={cited.slice(0, SHOWN)} />
          {cited.length > SHOWN && (
            <details className="fold">
              <summary>{cited.length - SHOWN} more</summary>
              <Alike cited={cited.slice(SHOWN)} />
            </details>
          )}
        </>
      )}
      {stop.effects.length > 0 && (
        <>
          <h3>Tools with effects since the last progress</h3>
          <ul className="stop-effects">
            {effectCalls(run).map(([tool, agent, numbers]) => (
              <li key={`${tool} ${agent}`}>
                <Icon name="diamond" /> <code>{tool}</code>
                {agent && <> of {agent}</>}{" "}
                <span className="faint">
                  {numbers.length === 1 ? "step" : "steps"} {numbers.join(", ")}
                </span>
              </li>
            ))}
          </ul>
        </>
      )}
      {stop.best && (
        <p>
          Best measured result: step {stop.best.step}, by {stop.best.agent}.
        </p>
      )}
      {stop.conclusion && (
        <>
          <h3>Conclusion</h3>
          <p className="stop-conclusion">{stop.conclusion}</p>
        </>
      )}
      {stop.remedy && <p>What would have let it go on: {stop.remedy}.</p>}
      {stop.change && (
        <p>
          To allow more: <code>{stop.change.guard}</code> in a program under guard, <code>{stop.change.definition}</code> in a definition.
        </p>
      )}
    </section>
  );
}

function Fact({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Alike({ cited }: { cited: Cited[] }) {
  return (
    <ul className="stop-alike">
      {cited.map((one) => (
        <li key={one.citation}>
          <span className="stop-citation">{one.citation}</span>
          <span>{one.what}</span>
          <span className="faint">{one.was}</span>
        </li>
      ))}
    </ul>
  );
}

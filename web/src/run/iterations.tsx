/** Rounds of review, side by side: what was asked, what came, what was said to it, and what changed. */
import { useState } from "react";
import type { Iteration, Run } from "../api/schema";
import { changed } from "../logic/diff";
import { AgentText } from "../ui/agent_text";
import { Empty, Moment, StateBadge } from "../ui/atoms";
import { Diff } from "../ui/diff";

const DECISIONS: Record<string, string> = { approve: "approved", revise: "sent it back", reject: "rejected", answer: "answered" };

export function Iterations({ run }: { run: Run }) {
  const rounds = run.iterations;
  const [chosen, setChosen] = useState<number>();
  if (!rounds.length) return <Empty title="No round of review yet">Where a person reviews results, every round stands here, complete and in order.</Empty>;
  const at = Math.min(chosen ?? rounds.length - 1, rounds.length - 1);
  const [before, after] = [rounds[at - 1], rounds[at] as Iteration];
  return (
    <div className="iterations">
      <div className="rounds" role="group" aria-label="Rounds">
        {rounds.map((one, n) => (
          <button key={one.n} type="button" aria-pressed={n === at} onClick={() => setChosen(n)}>
            Round {one.n}
          </button>
        ))}
      </div>
      <div className="side-by-side">
        {before && <Round round={before} />}
        <Round round={after} />
      </div>
      {before && changed(before.result, after.result) && (
        <>
          <h3>
            What changed from round {before.n} to round {after.n}
          </h3>
          <Diff before={before.result} after={after.result} label={`Round ${before.n} to ${after.n}`} />
        </>
      )}
    </div>
  );
}

function Round({ round }: { round: Iteration }) {
  return (
    <article className="round">
      <h3>
        Round {round.n} <span className="faint">by {round.agent}</span>
      </h3>
      <p className="typed">{round.task}</p>
      <div className="result" tabIndex={0} role="group" aria-label={`Result of round ${round.n}`}>
        <AgentText text={round.result} />
      </div>
      {round.decision ? (
        <p>
          <strong>
            {round.by} {DECISIONS[round.decision] ?? round.decision}
          </strong>{" "}
          <span className="faint">
            <Moment at={round.at} />
          </span>
          {round.text && <span className="typed block">{round.text}</span>}
        </p>
      ) : (
        <StateBadge state="waiting" word="Nobody has answered yet" />
      )}
    </article>
  );
}

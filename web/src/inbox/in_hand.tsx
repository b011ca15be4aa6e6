/** One question: what is asked, the result, what changed, why, the field, and what each button does. */
import { useMemo } from "react";
import { path } from "../api/client";
import { useQuery, type Concerns } from "../api/query";
import type { Approval, Bead, DefinitionDocument, DefinitionView, Run } from "../api/schema";
import { changed } from "../logic/diff";
import { agentName, placeTitle } from "../logic/words";
import { AgentText } from "../ui/agent_text";
import { Id, Link, Loaded, Moment } from "../ui/atoms";
import { Diff } from "../ui/diff";
import { Icon } from "../ui/icons";
import { AnswerForm } from "./answer_form";
import { KIND_WORDS, type Receipt } from "./inbox";
import { Quorum } from "./quorum";

interface Props {
  id: string;
  title: string | undefined;
  open: Approval[];
  answered: (receipt: Receipt) => void;
}

export function InHand({ id, title, open, answered }: Props) {
  const run = id.split(".")[0] ?? id;
  const concerns = useMemo<Concerns>(() => (event) => event.execution_id === run, [run]);
  const approval = useQuery<Approval>(`/approvals/${id}`, concerns);
  return (
    <Loaded of={approval} lines={10}>
      {(found) => <Question approval={found} title={title} open={open} answered={answered} concerns={concerns} />}
    </Loaded>
  );
}

function Question({ approval, title, open, answered, concerns }: Omit<Props, "id"> & { approval: Approval; concerns: Concerns }) {
  const run = useQuery<Run>(`/executions/${approval.execution_id}`, concerns);
  const bead = useQuery<Bead>(`/beads/${approval.original_bead_id}`);
  const wanted = run.data && path(`/workflows/${encodeURIComponent(run.data.workflow_id)}`, { version: run.data.workflow_version });
  const definition = useQuery<DefinitionView>(wanted ?? null);
  const document = definition.data?.definition as DefinitionDocument | undefined;
  const newer = open.find((one) => one.execution_id === approval.execution_id && one.id !== approval.id);
  const isOpen = approval.status === "open";
  const rounds = (run.data?.iterations ?? []).filter((one) => one.decision !== null);
  const before = rounds.at(-1)?.result ?? "";
  return (
    <article className={isOpen ? "question" : "question settled"}>
      <p className="question-line">
        <Link to="/inbox" className="only-narrow back" label="Back to the list">
          <Icon name="back" />
        </Link>
        <span className={`dot dot-${approval.type}`} aria-hidden="true" />
        {KIND_WORDS[approval.type]} · {placeTitle(document, approval.node_id)} · <Link to={`/runs/${approval.execution_id}`}>{title ?? bead.data?.title ?? "its run"}</Link>
        <span className="faint right">
          asked <Moment at={approval.created_at} /> · due <Moment at={approval.deadline} />
        </span>
      </p>
      {!isOpen && <Settled approval={approval} newer={newer} />}
      <h2>{approval.question}</h2>
      {approval.result ? (
        <div className="result" tabIndex={0} aria-label="The result" role="group">
          <AgentText text={approval.result} />
        </div>
      ) : (
        <Task bead={bead.data} />
      )}
      {before && approval.result && changed(before, approval.result) && (
        <details className="fold" open>
          <summary>What changed since the last round</summary>
          <Diff before={before} after={approval.result} label="Changes" />
        </details>
      )}
      <Dossier approval={approval} run={run.data} bead={approval.result ? bead.data : undefined} />
      <Quorum approval={approval} document={document} concerns={concerns} />
      {isOpen && <AnswerForm approval={approval} document={document} answered={answered} />}
    </article>
  );
}

function Settled({ approval, newer }: { approval: Approval; newer: Approval | undefined }) {
  const told: Record<string, string> = {
    answered: `${approval.by || "Somebody"} has answered this: ${approval.decision}.`,
    void: "This changed while you were reading.",
    expired: "Nobody answered in time.",
  };
  return (
    <div className="notice" role="alert">
      <strong>{told[approval.status]}</strong>{" "}
      {newer ? <Link to={`/inbox/${newer.id}`}>What is asked now</Link> : <Link to={`/runs/${approval.execution_id}`}>To the run</Link>}
    </div>
  );
}

function Task({ bead }: { bead: Bead | undefined }) {
  if (!bead) return null;
  return (
    <div className="result">
      <strong>{bead.title}</strong>
      {bead.description && <AgentText text={bead.description} />}
    </div>
  );
}

function Dossier({ approval, run, bead }: { approval: Approval; run: Run | undefined; bead: Bead | undefined }) {
  const rounds = run?.iterations ?? [];
  const attempts = approval.attempt_history;
  const folded = approval.type !== "escalation";
  if (!attempts.length && !rounds.length && !approval.failure_reason && !bead) return null;
  return (
    <details className="fold" open={!folded}>
      <summary>Why it is asked</summary>
      {bead && (
        <>
          <h3>The task</h3>
          <p>{bead.title}</p>
          {bead.description && <AgentText text={bead.description} />}
        </>
      )}
      {approval.failure_reason && <p className="failure">{approval.failure_reason}</p>}
      {attempts.length > 0 && (
        <ol className="attempts">
          {attempts.map((one, n) => (
            <li key={n}>
              <span className="faint">
                {(attempts.at(-1)?.visit ?? 1) > 1 && `visit ${one.visit}, `}attempt {one.n}, {agentName(one.agent)}, {one.outcome}, <Moment at={one.at} />
              </span>
              <AgentText text={one.text} />
            </li>
          ))}
        </ol>
      )}
      {approval.failed_check && (
        <>
          <h3>The last check that failed</h3>
          <p>
            <code>{approval.failed_check.command}</code> ✕ exit code {approval.failed_check.exit_code}, at {approval.failed_check.node_id}
          </p>
          {approval.failed_check.output && <pre tabIndex={0}>{approval.failed_check.output}</pre>}
        </>
      )}
      {rounds.length > 1 && (
        <>
          <h3>Rounds so far</h3>
          <ol className="attempts">
            {rounds
              .filter((one) => one.decision)
              .map((one) => (
                <li key={one.n}>
                  <span className="faint">
                    round {one.n}: {one.by} said {one.decision}
                  </span>
                  {one.text && <p className="typed">{one.text}</p>}
                </li>
              ))}
          </ol>
        </>
      )}
      <p className="faint">
        Question <Id id={approval.id} />, digest <Id id={approval.digest} />
      </p>
    </details>
  );
}

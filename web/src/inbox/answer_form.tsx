/**
 * The field and the buttons. Enter sends the text, and the server says what it means; Retry is a
 * revision, and asks back if the text is an approval; a reject wants to be confirmed. While an answer
 * is under way nothing is sent twice, and what was typed stays until it has arrived. Keys decide once
 * the question has been on screen for a second, and once per press; a double click decides one question.
 *
 * Whoever asks for a permission, such as a guarded program for a tool of an agent, offers `approve` and
 * `reject`: buttons that answer by a text. A text beside the reject is the reason, and never anything else.
 */
import { useRef, useState, type KeyboardEvent } from "react";
import { post, Problem } from "../api/client";
import { again, put } from "../api/query";
import type { Answered, Approval, DefinitionDocument } from "../api/schema";
import { reads } from "../logic/answers";
import { DecidedClicks } from "../logic/arming";
import { consequences, placeTitle, receipt } from "../logic/words";
import { useMe } from "../me";
import { useArmed } from "../ui/armed";
import { Trouble } from "../ui/atoms";
import { useDraft } from "../ui/draft";
import { useKeys } from "../ui/keys";
import type { Receipt } from "./inbox";

type Decision = "approve" | "reject" | "revise";
interface Said {
  text: string;
  decision?: Decision;
}

const clicks = new DecidedClicks();

interface Props {
  approval: Approval;
  document: DefinitionDocument | undefined;
  answered: (told: Receipt) => void;
}

export function AnswerForm({ approval, document, answered }: Props) {
  const me = useMe();
  const [text, setText] = useDraft(approval.id);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  const [sure, setSure] = useState<"reject" | "retry" | null>(null);
  const [unclear, setUnclear] = useState(false);
  const armed = useArmed(`${approval.id} ${approval.digest}`);
  const [early, setEarly] = useState(false); // a key was pressed before
  if (early && armed) setEarly(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const sending = useRef(false);
  const ways = consequences(approval, document);
  const isOwn = approval.proposed_next_steps[0]?.startsWith("answer:") ?? false;
  const permits = isOwn && PERMISSION.every((option) => approval.options?.includes(option));
  const options = permits ? approval.options?.filter((option) => !PERMISSION.includes(option)) : approval.options;
  const may = me.atLeast(approval.type === "clarification_request" ? "operator" : "ceo");

  const send = async (said: Said): Promise<void> => {
    if (sending.current || !may) return; // also for the second of two clicks, before anything is drawn
    sending.current = true;
    clicks.sent(approval.id, performance.now());
    setBusy(true);
    setError(undefined);
    setUnclear(false);
    setSure(null);
    try {
      const got = await post<Answered>(`/approvals/${approval.id}/answer`, { ...said, digest: approval.digest });
      setText("");
      put(`/approvals/${approval.id}`, got.approval);
      put(`/executions/${approval.execution_id}`, got.execution);
      answered({ text: receipt(got.approval.decision || "answer", got.execution, document), run: approval.execution_id });
    } catch (problem) {
      if (problem instanceof Problem && problem.code === "ambiguous_answer") setUnclear(true);
      else setError(problem as Error);
      if (problem instanceof Problem && problem.status === 409) again(`/approvals/${approval.id}`);
    } finally {
      sending.current = false;
      setBusy(false);
    }
  };

  const reading = reads(text);
  const retry = (): void => {
    if (!text.trim() || !ways.revise) return;
    if (reading === "approve" && sure !== "retry") setSure("retry");
    else void send({ decision: "revise", text });
  };
  const reject = (): void => (sure === "reject" ? void send({ decision: "reject", text }) : setSure("reject"));
  const permit = (): void => void send({ text: "approve" });
  const refuse = (): void => void send({ text: text.trim() ? `no: ${text.trim()}` : "reject" });
  const enter = (): void => void (text.trim() && send({ text }));
  const byKey = (decide: () => void): void => (armed ? decide() : setEarly(true));

  useKeys(
    isOwn
      ? {
          ...(permits && { a: () => byKey(permit), x: () => byKey(refuse) }),
          r: () => field.current?.focus(),
        }
      : {
          a: () => byKey(() => void send({ decision: "approve", text: "" })),
          r: () => field.current?.focus(),
          x: () => byKey(reject),
          Escape: () => setSure(null),
        },
  );

  const pressed = (event: KeyboardEvent<HTMLTextAreaElement>): void => {
    if (event.key === "Escape") field.current?.blur();
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    if (!event.repeat) byKey(event.ctrlKey || event.metaKey ? retry : enter);
  };

  if (!may) {
    return (
      <p className="notice">
        You are {me.role}; to answer this takes {approval.type === "clarification_request" ? "an operator" : "a ceo"}.
      </p>
    );
  }
  return (
    <form
      className="answer"
      data-armed={armed}
      onClickCapture={(event) => {
        if (clicks.allows(approval.id, event.nativeEvent)) return;
        event.preventDefault();
        event.stopPropagation();
      }}
      onKeyDown={(event) => {
        if (event.repeat && event.key === "Enter") event.preventDefault(); // a button with the focus is pressed once, too
      }}
      onSubmit={(event) => {
        event.preventDefault();
        enter();
      }}
    >
      {unclear && <Unclear ways={ways} choose={(decision) => void send({ decision, text })} />}
      {sure === "retry" && (
        <div className="notice" role="alert">
          “{text.trim()}” reads as an approval. Which is meant?{" "}
          <button type="button" onClick={() => void send({ decision: "approve", text })}>
            Approve
          </button>{" "}
          <button type="button" onClick={() => void send({ decision: "revise", text })}>
            Send it back
          </button>
        </div>
      )}
      {error && <Trouble error={error} />}
      {options && options.length > 0 && (
        <div className="options" role="group" aria-label="Choices">
          {options.map((option) => (
            <button key={option} type="button" disabled={busy} onClick={() => void send({ text: option })}>
              {option}
            </button>
          ))}
        </div>
      )}
      <label className="sr" htmlFor="answer">
        Your answer
      </label>
      <textarea
        id="answer"
        ref={field}
        rows={3}
        value={text}
        disabled={busy}
        placeholder={permits ? "A reason against it, or another answer" : isOwn ? "Your answer" : "OK approves; anything else says what to change"}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={pressed}
      />
      <p className="hint" aria-live="polite">
        {early ? EARLY : isOwn ? ownHint(text, placeTitle(document, approval.node_id)) : HINTS[reading](ways)}
      </p>
      {isOwn ? (
        <div className="buttons">
          {permits && <Choice name="Approve" keys="a" does="lets it happen" kind="primary" busy={busy} act={permit} />}
          {permits && (
            <Choice name="Reject" keys="x" does="refuses it; your text is the reason" kind="danger" busy={busy} act={refuse} />
          )}
          <button type="submit" className={permits ? "choice" : "primary"} disabled={busy || !text.trim()}>
            <span>
              Send {permits && <kbd aria-hidden="true">Enter</kbd>}
            </span>
            {permits && <small>your text is the answer</small>}
          </button>
        </div>
      ) : (
        <div className="buttons">
          <Choice name="Approve" keys="a" does={ways.approve} kind="primary" busy={busy} act={() => void send({ decision: "approve", text: "" })} />
          <Choice
            name="Retry"
            keys="Ctrl Enter"
            does={ways.revise ?? "this definition has no way back"}
            busy={busy || !text.trim() || !ways.revise}
            act={retry}
          />
          <Choice name={sure === "reject" ? "Really reject" : "Reject"} keys="x x" does={ways.reject} kind="danger" busy={busy} act={reject} />
        </div>
      )}
    </form>
  );
}

const PERMISSION = ["approve", "reject"];
const EARLY = "Keys work once this has been on screen for a second.";

type Ways = ReturnType<typeof consequences>;

const HINTS: Record<ReturnType<typeof reads>, (ways: Ways) => string> = {
  empty: () => "",
  approve: (ways) => `Enter approves: ${ways.approve}.`,
  unclear: () => "This could mean either; you will be asked which.",
  revise: (ways) => (ways.revise ? `Enter sends it back: ${ways.revise}.` : "There is no way back here: approve or reject."),
};

function ownHint(text: string, asker: string): string {
  return text.trim() ? `Enter sends it to ${asker}, which goes on with it.` : "";
}

function Choice({ name, keys, does, kind = "", busy, act }: { name: string; keys: string; does: string; kind?: string; busy: boolean; act: () => void }) {
  return (
    <button type="button" className={`choice ${kind}`} disabled={busy} onClick={act}>
      <span>
        {name} <kbd aria-hidden="true">{keys}</kbd>
      </span>
      <small>{does}</small>
    </button>
  );
}

function Unclear({ ways, choose }: { ways: Ways; choose: (decision: Decision) => void }) {
  return (
    <div className="notice" role="alert">
      <strong>That could mean either.</strong> Which is it?
      <div className="options">
        <button type="button" onClick={() => choose("approve")}>
          Approve: {ways.approve}
        </button>
        {ways.revise && (
          <button type="button" onClick={() => choose("revise")}>
            Retry: {ways.revise}
          </button>
        )}
        <button type="button" onClick={() => choose("reject")}>
          Reject: {ways.reject}
        </button>
      </div>
    </div>
  );
}

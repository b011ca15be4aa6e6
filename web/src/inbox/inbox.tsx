/** What waits for a person: the list, the oldest deadline first, and the one in hand. */
import { useEffect, useMemo, useState } from "react";
import { asking, OPEN } from "../api/questions";
import { everything, useQuery } from "../api/query";
import type { Approval, Page, RunItem } from "../api/schema";
import { go, useRoute } from "../route";
import { Empty, Link, Loaded, Moment } from "../ui/atoms";
import { useKeys } from "../ui/keys";
import { InHand } from "./in_hand";

const WAITING = "/executions?status=waiting&limit=200";
const ANSWERS_MAX = 100;
export const KIND_WORDS: Record<string, string> = {
  clarification_request: "Question",
  approval: "Approval",
  escalation: "Escalation",
};

export interface Receipt {
  text: string;
  run: string;
}

export function Inbox() {
  const { item } = useRoute();
  const open = useQuery<Page<Approval>>(OPEN, asking);
  const waiting = useQuery<Page<RunItem>>(WAITING, everything);
  const [receipt, setReceipt] = useState<Receipt>();
  const [answers, setAnswers] = useState<readonly string[]>([]);
  const titles = useMemo(() => new Map(waiting.data?.items.map((run) => [run.id, run])), [waiting.data]);
  const items = useMemo(() => (open.data?.items ?? []).filter((one) => !answers.includes(one.id)).sort(byDeadline), [open.data, answers]);
  const at = items.findIndex((one) => one.id === item);
  const wide = useWide();
  const move = (step: number): void => {
    const to = items[Math.min(items.length - 1, Math.max(0, (at < 0 ? 0 : at) + step))];
    if (to) go(`/inbox/${to.id}`, { replace: true });
  };
  useKeys({ j: () => move(1), k: () => move(-1) }, { mayRepeat: true });
  const first = items[0]?.id;
  useEffect(() => {
    if (!item && wide && first) go(`/inbox/${first}`, { replace: true });
  }, [item, wide, first]);

  const answered = (told: Receipt): void => {
    setReceipt(told);
    setAnswers((before) => [...before, item].slice(-ANSWERS_MAX)); // until the list says so too
    const next = items[at + 1] ?? items[at - 1];
    go(next && wide ? `/inbox/${next.id}` : "/inbox", { replace: true });
    open.again();
  };

  return (
    <div className={item ? "inbox has-item" : "inbox"}>
      <section className="inbox-list" aria-label="What waits for you">
        <h1>
          Inbox <span className="faint">{open.data ? items.length : ""}</span>
        </h1>
        {receipt && <ReceiptNote receipt={receipt} close={() => setReceipt(undefined)} />}
        <Loaded of={open} lines={8}>
          {() =>
            items.length ? (
              <ul>
                {items.map((one) => (
                  <li key={one.id} className="fade-in">
                    <Link to={`/inbox/${one.id}`} className={one.id === item ? "card chosen" : "card"}>
                      <span className="card-kind">
                        <span className={`dot dot-${one.type}`} aria-hidden="true" />
                        {KIND_WORDS[one.type] ?? one.type}
                        <span className="faint right">
                          <Moment at={one.deadline} />
                        </span>
                      </span>
                      <strong>{titles.get(one.execution_id)?.title ?? one.question}</strong>
                      <span className="faint cut">
                        {titles.get(one.execution_id)?.workflow_id ?? ""} · {one.question}
                      </span>
                    </Link>
                  </li>
                ))}
              </ul>
            ) : (
              <Empty title="Nothing waits for you" command="handrail bead create finance --title 'Invoice for 3 x 120.50'">
                When an agent asks, or a result wants approval, it stands here. To see one:
              </Empty>
            )
          }
        </Loaded>
      </section>
      <section className="inbox-item" aria-label="The one in hand">
        {item ? (
          <InHand key={item} id={item} title={titles.get(items[at]?.execution_id ?? "")?.title} open={items} answered={answered} />
        ) : (
          items.length > 0 && <Empty title="Choose one">With j and k you go through them.</Empty>
        )}
      </section>
    </div>
  );
}

function ReceiptNote({ receipt, close }: { receipt: Receipt; close: () => void }) {
  return (
    <div className="receipt" role="status">
      <span>{receipt.text}</span> <Link to={`/runs/${receipt.run}`}>To the run</Link>
      <button type="button" className="plain" aria-label="Close" onClick={close}>
        ×
      </button>
    </div>
  );
}

function byDeadline(a: Approval, b: Approval): number {
  return a.deadline.localeCompare(b.deadline) || a.id.localeCompare(b.id);
}

/** Whether both panes stand side by side. */
export function useWide(): boolean {
  const [wide, setWide] = useState(() => matchMedia("(min-width: 800px)").matches);
  useEffect(() => {
    const query = matchMedia("(min-width: 800px)");
    const changed = (): void => setWide(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return wide;
}

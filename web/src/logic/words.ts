/** How things are told: states, sentences about a run, and what each answer to a question will do. */
import type { Approval, Bound, DefinedNode, DefinitionDocument, Run, Why } from "../api/schema";
import { clock, duration } from "./time";

export type State = "running" | "waiting" | "paused" | "done" | "partial" | "stuck" | "constraint" | "closed";

const ENDINGS: Record<string, State> = {
  done_success: "done",
  done_partial: "partial",
  aborted_stuck: "stuck",
  aborted_constraint: "constraint",
  closed_by_human: "closed",
};

export const STATE_WORDS: Record<State, string> = {
  running: "Running",
  waiting: "Waits for a person",
  paused: "Paused",
  done: "Done",
  partial: "Partly done",
  stuck: "Stuck",
  constraint: "Constraint",
  closed: "Closed",
};

export function stateOf(run: { status: string; terminal_status: string | null }): State {
  if (run.status === "ended") return ENDINGS[run.terminal_status ?? ""] ?? "closed";
  return run.status === "waiting" || run.status === "paused" ? run.status : "running";
}

/** "CEO Approval" of "CEO Approval: apply the proposed fix?"; else the id with spaces. */
export function nodeTitle(node: { id: string; description?: string } | undefined, id = ""): string {
  const name = node?.id ?? id;
  const head = /^([^:.]{2,40}):\s/.exec(node?.description ?? "")?.[1];
  const plain = name.replace(/[_-]+/g, " ");
  return head ?? plain.charAt(0).toUpperCase() + plain.slice(1);
}

export function placeTitle(document: DefinitionDocument | undefined, id: string): string {
  const found = document?.nodes?.find((one) => one.id === id) ?? document?.agents?.find((one) => one.id === id);
  // an agent's description is a sentence about it, not its name
  return document?.nodes ? nodeTitle(found, id) : nodeTitle(undefined, id);
}

/** Of the answer to "why" what the sentence is made from. */
export type Reasons = Pick<Why, "why" | "waiting">;

/** Where a run is, in one sentence, always. */
export function sentence(run: Run, why: Reasons | undefined, document: DefinitionDocument | undefined, now: number): string {
  if (run.status === "ended") return why?.why || run.stop?.reason || STATE_WORDS[stateOf(run)];
  const told = (why?.waiting ?? []).map((one) => {
    const place = placeTitle(document, one.place);
    const since = (now - Date.parse(one.since)) / 1000;
    if (one.code === "asked") return `Waiting since ${clock(one.since)}: ${one.message.replace(/^a person is asked: /, "")}`;
    if (one.code === "claimed") return `${place} is working${tries(run, one.place, document)}, ${duration(Math.max(0, since))}`;
    return `${place}: ${one.message}${one.hint ? ` (${one.hint})` : ""}`;
  });
  if (told.length) return `${told.join("; ").replace(/[.;]$/, "")}${/[.?!]$/.test(told.at(-1) ?? "") ? "" : "."}`;
  const places = run.current_node_ids.map((id) => placeTitle(document, id)).join(", ");
  return places ? `At ${places}.` : `${STATE_WORDS[stateOf(run)]}.`;
}

/** The sentence beside the state's own word, which it need not repeat. */
export function withoutState(told: string, state: State): string {
  const rest = told.startsWith(`${STATE_WORDS[state]}: `) ? told.slice(STATE_WORDS[state].length + 2) : told;
  return rest.charAt(0).toUpperCase() + rest.slice(1);
}

function tries(run: Run, place: string, document: DefinitionDocument | undefined): string {
  const most = document?.nodes?.find((one) => one.id === place)?.max_attempts;
  const count = run.attempts[place];
  return most && count && most > 1 ? `, attempt ${Math.min(count, most)} of ${most}` : "";
}

export interface Consequences {
  approve: string;
  revise: string | null; // null: there is no way back
  reject: string;
}

/** What each button will do, before it does it. */
export function consequences(approval: Approval, document: DefinitionDocument | undefined): Consequences {
  if (approval.type === "escalation") {
    const place = placeTitle(document, approval.node_id);
    return {
      approve: `goes on as if ${place} had succeeded`,
      revise: `${place} is tried again with your text`,
      reject: "closes the run and its bead",
    };
  }
  if (document?.agents) return ofTeam(document);
  const node = document?.nodes?.find((one) => one.id === approval.node_id);
  return node ? ofNode(node, document ?? {}) : { approve: "goes on", revise: "goes back with your text", reject: "ends it here" };
}

function ofTeam(document: DefinitionDocument): Consequences {
  const back = document.review?.back_to;
  return {
    approve: "the run is done, with this result",
    revise: back ? `goes back to ${placeTitle(document, back)} with your text` : "goes back with your text",
    reject: "closes the run",
  };
}

function ofNode(node: DefinedNode, document: DefinitionDocument): Consequences {
  const ways = (document.edges ?? []).filter((edge) => edge.from_node_id === node.id);
  const title = (id: string): string => {
    const to = document.nodes?.find((one) => one.id === id);
    return to?.type === "end" ? "the end" : nodeTitle(to, id);
  };
  const forward = [...new Set(ways.filter((one) => one.condition !== "failure").map((one) => title(one.to_node_id)))];
  const failure = ways.find((one) => one.condition === "failure");
  const back = node.config?.revise_to;
  return {
    approve: forward.length ? `goes on to ${forward.join(" or ")}` : "goes on",
    revise: back ? `goes back to ${title(back)} with your text` : null,
    reject: failure ? `goes to ${title(failure.to_node_id)}` : "ends the run here",
  };
}

const DONE: Record<string, string> = { approve: "Approved.", revise: "Sent back with your text.", reject: "Rejected.", answer: "Answered." };

/** What came of an answer. */
export function receipt(decision: string, run: Run, document: DefinitionDocument | undefined): string {
  const head = DONE[decision] ?? "Answered.";
  if (run.status === "ended") return `${head} The run has ended: ${STATE_WORDS[stateOf(run)].toLowerCase()}.`;
  const places = run.current_node_ids.map((id) => placeTitle(document, id));
  return places.length ? `${head} The run goes on at ${places.join(", ")}.` : head;
}

/** "at most 32 dispatches, 8 questions, 16 h of work" */
export function certificate(bound: Bound): string {
  const figures: [number, string, string][] = [
    [bound.dispatches, "dispatch", "dispatches"],
    [bound.handoffs, "handoff", "handoffs"],
    [bound.transitions, "transition", "transitions"],
    [bound.questions, "question to people", "questions to people"],
  ];
  const told = figures.filter(([n]) => n > 0).map(([n, one, many]) => `${n.toLocaleString()} ${n === 1 ? one : many}`);
  return `At most ${told.join(", ")}, and ${duration(bound.time.work)} of work.`;
}

export function short(id: string): string {
  const [run = id, rest] = id.split(".");
  return (run.length > 12 ? `…${run.slice(-6)}` : run) + (rest ? `.${rest}` : "");
}

/** An agent of this process is called `role@engine`; people read the first half. */
export function agentName(id: string): string {
  return id.split("@")[0] ?? id;
}

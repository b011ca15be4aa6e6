/** A channel in words: what each mode promises, who has the turn, and what became of a message. */
import type { Channel, ChannelTurn, HistoryEvent, Message, Posted } from "../api/schema";
import { duration } from "./time";
import type { State } from "./words";

export type Mode = Channel["turnConfig"]["humanInterruptMode"];
export type Order = Channel["turnConfig"]["order"];

export const MODES: Record<Mode, { title: string; promise: string }> = {
  inject: { title: "Inject", promise: "It reaches the agent that has the turn, at once. The turn goes on." },
  queue: { title: "Queue", promise: "It waits for the end of the turn; the next agent begins with it." },
  interrupt: { title: "Interrupt", promise: "It pauses the turn, and its clock. The agent has it when the turn goes on." },
  parallel: { title: "Parallel", promise: "It reaches everybody in the queue, at once. The turn goes on." },
};

export const ORDERS: Record<Order, string> = {
  round_robin: "one after the other",
  priority: "higher priority first",
  manual: "a person grants every turn",
};

export const MEMBER_STATES: Record<string, [State, string]> = {
  ACTIVE: ["running", "has the turn"],
  WAITING: ["waiting", "turn is paused"],
  QUEUED: ["closed", "in the queue"],
  IDLE: ["closed", "idle"],
  OFFLINE: ["stuck", "offline"],
};

/** What will become of what a person says now. */
export function promiseOf(channel: Channel): string {
  const mode = channel.turnConfig.humanInterruptMode;
  if (channel.active || (channel.turn && mode === "parallel")) return MODES[mode].promise;
  if (channel.turn) return "The turn is paused: it is read when the turn goes on, or by whoever is next.";
  if (!channel.members.some((one) => one.state !== "OFFLINE")) return "Nobody is here: it is logged, and comes to nobody.";
  return channel.paused ? "The channel is paused: it waits for the next turn." : "It goes to the next turn.";
}

/** How a channel stands, in one word with its colour. */
export function standingOf(channel: Channel): [State, string] {
  if (channel.paused) return ["paused", "Paused"];
  if (channel.turn) return channel.active ? ["running", "In turn"] : ["waiting", "Turn paused"];
  if (channel.resting) return ["done", "Rests"];
  if (!channel.queue.length) return ["closed", "Empty"];
  return channel.turnConfig.order === "manual" ? ["waiting", "Waits for you"] : ["closed", "Nobody is free"];
}

/** Who has the turn and for how long, or why nobody has it, in one sentence. */
export function turnSentence(channel: Channel, now: number): string {
  const { turn } = channel;
  if (turn) return held(turn, now);
  if (channel.paused) return "Nobody has the turn: the channel is paused.";
  if (channel.resting) return `Nobody has the turn: the channel rests (${channel.resting}). Say something, and it goes on.`;
  if (!channel.members.length) return "There is no agent in this channel yet.";
  if (!channel.queue.length) return "Nobody is in the queue: what you say is logged, or wakes an agent that is idle.";
  if (channel.turnConfig.order === "manual") return "Nobody has the turn: grant it to one of them.";
  return "Nobody has the turn: all who are in the queue work elsewhere.";
}

function held(turn: ChannelTurn, now: number): string {
  const since = `for ${duration(Math.max(0, (now - Date.parse(turn.granted_at)) / 1000))}`;
  if (!turn.wait_until) return `${turn.agent_id} has had the turn ${since}.`;
  const left = duration(Math.max(0, (Date.parse(turn.wait_until) - now) / 1000));
  if (turn.interrupted) return `A person has paused the turn of ${turn.agent_id}. It goes on by itself in ${left}.`;
  return `${turn.agent_id} has had the turn ${since}, and waits. It loses the turn in ${left}.`;
}

/** Of the turn's clock: seconds left, and which part of the whole that is. */
export function clockOf(turn: ChannelTurn, now: number): { seconds: number; share: number } {
  if (turn.wait_until) return { seconds: turn.seconds_left, share: 1 };
  const end = Date.parse(turn.timeout_at ?? turn.granted_at);
  const whole = Math.max(1, end - Date.parse(turn.granted_at));
  const left = Math.min(whole, Math.max(0, end - now));
  return { seconds: left / 1000, share: left / whole };
}

/** "0:42", "12:05" */
export function countdown(seconds: number): string {
  const whole = Math.ceil(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

/** What became of what a person said; `holder` is who had the turn before. */
export function receiptOf(posted: Posted, mode: Mode, holder: string | null): string {
  if (posted.disposition === "logged") return "Nobody is here: it stands in the log, and comes to nobody.";
  if (posted.disposition === "delivered") {
    if (!holder) return "It has reached an agent, which has the turn now.";
    return mode === "parallel" ? "Everybody in the queue has it." : `${holder} has it.`;
  }
  if (!holder) return "It waits for the next turn.";
  if (mode === "interrupt") return `The turn of ${holder} is paused; ${holder} has it when the turn goes on.`;
  return `It waits for the end of the turn of ${holder}.`;
}

export const RING_MAX = 10;

export interface Seat {
  agent: string;
  x: number;
  y: number;
}

/** The queue around a circle, by position, clockwise from the top. Of many the holder and those after. */
export function seats(channel: Channel, radius: number): { seats: Seat[]; hidden: number } {
  const { queue } = channel;
  const from = queue.length > RING_MAX ? Math.max(0, queue.indexOf(channel.turn?.agent_id ?? channel.next ?? "")) : 0;
  const shown = [...queue.slice(from), ...queue.slice(0, from)].slice(0, RING_MAX);
  const placed = shown.map((agent, n) => {
    const angle = (2 * Math.PI * n) / shown.length - Math.PI / 2;
    return { agent, x: radius * Math.cos(angle), y: radius * Math.sin(angle) };
  });
  return { seats: placed, hidden: queue.length - shown.length };
}

/** Two letters that stand for an agent or a person. */
export function initials(name: string): string {
  const words = name.split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const letters = words.length > 1 ? [...(words[0] ?? "")].slice(0, 1).concat([...(words[1] ?? "")].slice(0, 1)) : [...(words[0] ?? name)].slice(0, 2);
  return letters.join("").toUpperCase() || "?";
}

/** The line that an event of the channel becomes, if it becomes one. */
export function lineOf(event: HistoryEvent): Message | undefined {
  const text = (name: string): string => (typeof event[name] === "string" ? (event[name] as string) : "");
  const line = { id: event.seq, at: event.at, text: text("text"), to: text("to") || null };
  if (event.type === "MessagePosted") return { ...line, kind: "message", author: text("author"), human: event.human === true, code: "" };
  if (event.type === "Noticed") return { ...line, kind: "notice", author: event.actor, human: false, code: text("code") };
  return undefined;
}

/** Lines that were there and lines that came, in order, each once. */
export function joined<T extends { id: number }>(old: readonly T[], came: readonly T[]): T[] {
  const known = new Map([...old, ...came].map((one) => [one.id, one]));
  return [...known.values()].sort((a, b) => a.id - b.id);
}

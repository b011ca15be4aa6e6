/** A run as it stood after its first events: what the graph shows while the slider is moved. */
import type { HistoryEvent, Run, Transition } from "../api/schema";

export interface Standing {
  current: string[];
  done: string[];
  ways: Record<string, number>; // "a>b" -> how often
  failed?: string; // where it stopped, if not well
}

export const wayKey = (from: string, to: string): string => `${from}>${to}`;

export function standing(events: readonly HistoryEvent[], count: number): Standing {
  const current = new Set<string>();
  const done = new Set<string>();
  const ways: Record<string, number> = {};
  let failed: string | undefined;
  for (const event of events.slice(0, count)) {
    if (event.type === "started") current.add(event.place as string);
    else if (event.type === "moved") move(event, current, done, ways);
    else if (event.type === "handed_off" && event.accepted !== false) {
      add(ways, event.source as string, event.target as string);
      if (!event.already_done) {
        current.delete(event.source as string);
        done.add(event.source as string);
        current.add(event.target as string);
      }
    } else if (event.type === "ended") {
      const good = String(event.status).startsWith("done");
      if (!good) failed = [...current].at(-1);
      else current.forEach((one) => done.add(one));
      current.clear();
    }
  }
  return { current: [...current], done: [...done].filter((one) => !current.has(one)), ways, failed };
}

function move(event: HistoryEvent, current: Set<string>, done: Set<string>, ways: Record<string, number>): void {
  const source = event.source as string;
  for (const target of (event.targets as string[] | undefined) ?? []) if (source) add(ways, source, target);
  current.delete(source);
  if (source) done.add(source);
  for (const gone of (event.cancels as string[] | undefined) ?? []) current.delete(gone);
  for (const entered of (event.enters as string[] | undefined) ?? []) current.add(entered);
}

function add(ways: Record<string, number>, from: string, to: string): void {
  ways[wayKey(from, to)] = (ways[wayKey(from, to)] ?? 0) + 1;
}

/** The same from what the API says of a run now, without its events. */
export function standingOf(run: Run, transitions: readonly Transition[]): Standing {
  const ways: Record<string, number> = {};
  const done = new Set<string>();
  for (const one of transitions) {
    if (!one.from_node_id) continue;
    done.add(one.from_node_id);
    if (one.to_node_id) add(ways, one.from_node_id, one.to_node_id);
  }
  const ended = run.status === "ended";
  const good = run.terminal_status?.startsWith("done") ?? false;
  const last = run.stop?.agent || run.final_agent;
  if (ended && good && last) done.add(last);
  const current = run.current_node_ids;
  return { current, done: [...done].filter((one) => !current.includes(one)), ways, failed: ended && !good && last ? last : undefined };
}

/** One line about an event, for people. */
export function told(event: HistoryEvent): string {
  const text = (name: string): string => (typeof event[name] === "string" ? (event[name] as string) : "");
  const result = event.result as { outcome?: string; text?: string } | undefined;
  const question = event.question as { text?: string } | undefined;
  const stop = event.stop as { reason?: string } | undefined;
  const lines: Record<string, string> = {
    started: text("title"),
    offered: `${text("place")}, attempt ${String(event.attempt ?? 1)}`,
    claimed: `${text("agent")} took ${text("place")}`,
    reported: `${result?.outcome ?? ""}: ${result?.text ?? ""}`,
    handed_off: `${text("source")} → ${text("target")}: ${text("reason")}${event.accepted === false ? " (refused)" : ""}`,
    moved: `${text("source") || "·"} → ${((event.targets as string[] | undefined) ?? []).join(", ")}${text("reason") ? `: ${text("reason")}` : ""}`,
    asked: question?.text ?? "",
    reasked: text("reason"),
    answered: `${text("decision")}${text("text") ? `: ${text("text")}` : ""}`,
    ended: `${text("status")}: ${stop?.reason ?? ""}`,
    warned: text("message"),
  };
  return lines[event.type] ?? text("reason");
}

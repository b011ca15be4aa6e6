/** The stop rules of a run as meters: used against limit, the nearest first. */
import type { Bound, Report, Run } from "../api/schema";
import { duration } from "./time";

export interface Meter {
  rule: string;
  title: string;
  used: number;
  limit: number;
  told: string;
  detail?: string;
  fired?: boolean;
}

const TITLES: Record<string, string> = {
  max_handoffs: "Handoffs",
  max_steps: "Steps",
  max_duration: "Time",
  max_edge: "The busiest way",
  same_error: "The same error",
  budget: "Budget",
  dispatches: "Dispatches",
  transitions: "Transitions",
  questions: "Questions",
  repeated_pattern: "The same handoffs in a row",
  no_change: "Turns without a change",
  oscillation: "Back to earlier contents",
  monologue: "The same text in a row",
  research_exhausted: "Fruitless research",
  protocol: "Answers that cannot be used",
};

export function meters(report: Report, bound: Bound | null | undefined, soft: Run["soft_rules"] = {}): Meter[] {
  const limits = report.limits as Record<string, number | null | undefined>;
  const found: Meter[] = [];
  const add = (rule: string, used: number, limit: number | null | undefined, told?: string, detail?: string): void => {
    if (limit === null || limit === undefined || limit <= 0) return;
    found.push({ rule, title: TITLES[rule] ?? rule, used, limit, told: told ?? `${used} / ${limit}`, detail });
  };
  if (report.kind === "team") {
    add("max_handoffs", report.totals.handoffs, limits.max_handoffs);
    add("max_steps", report.totals.steps, limits.max_steps);
  } else if (bound) {
    add("dispatches", report.totals.dispatches, bound.dispatches);
    add("transitions", report.totals.transitions, bound.transitions);
    add("questions", report.totals.questions, bound.questions);
  }
  add("max_duration", report.running, limits.max_duration, `${duration(report.running)} / ${duration(limits.max_duration ?? 0)}`);
  const ways = Object.entries(report.loop_counters).filter(([, one]) => one.limit);
  const [way, most] = ways.sort(([, a], [, b]) => b.count / (b.limit ?? 1) - a.count / (a.limit ?? 1))[0] ?? [];
  if (way && most) add("max_edge", most.count, most.limit, undefined, way.replace("_to_", " → "));
  const failing = report.last_command && report.last_command.exit_code !== 0 ? report.last_command : null;
  if (failing) add("same_error", failing.seen, limits.same_error_limit, undefined, failing.command);
  add("budget", report.usage.tokens, limits.max_tokens, undefined, "tokens");
  add("budget", report.usage.cost, limits.max_cost, undefined, "cost");
  for (const [rule, one] of Object.entries(soft)) add(rule, one.count, one.limit);
  return withStop(found, report).sort((a, b) => Number(b.fired ?? false) - Number(a.fired ?? false) || b.used / b.limit - a.used / a.limit);
}

/** The rule that ended the run stands first, also where it is metered by nothing else. */
function withStop(found: Meter[], report: Report): Meter[] {
  const stop = report.stop;
  if (!stop || typeof stop.limit !== "number" || typeof stop.seen !== "number") return found;
  const others = found.filter((one) => one.rule !== stop.rule);
  const known = found.find((one) => one.rule === stop.rule);
  const title = TITLES[stop.rule] ?? stop.rule.replaceAll("_", " ");
  const told = stop.rule === "max_duration" ? (known?.told ?? `${stop.seen} / ${stop.limit}`) : `${stop.seen} / ${stop.limit}`;
  return [{ rule: stop.rule, title, used: stop.seen, limit: stop.limit, told, detail: known?.detail, fired: true }, ...others];
}

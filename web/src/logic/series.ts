/**
 * Figures of single days. The API sums up everything since a moment; what is since one midnight and
 * not since the next is that day's.
 */
import type { Figures } from "../api/schema";

export interface Day {
  runs: number;
  succeeded: number;
  escalated: number;
  seconds: number; // of all its runs
  tokens: number;
  cost: number;
}

const NONE: Day = { runs: 0, succeeded: 0, escalated: 0, seconds: 0, tokens: 0, cost: 0 };

export function summed(items: readonly Figures[]): Day {
  return items.reduce(
    (sum, one) => ({
      runs: sum.runs + one.runs,
      succeeded: sum.succeeded + Math.round(one.success_rate * one.runs),
      escalated: sum.escalated + Math.round(one.escalation_rate * one.runs),
      seconds: sum.seconds + one.time_to_resolution.mean * one.runs,
      tokens: sum.tokens + one.usage.tokens,
      cost: sum.cost + one.usage.cost,
    }),
    NONE,
  );
}

/** `since[n]` is everything since the nth midnight; the last one is today's. */
export function days(since: readonly Day[]): Day[] {
  return since.map((one, n) => {
    const after = since[n + 1] ?? NONE;
    const left = (name: keyof Day): number => Math.max(0, one[name] - after[name]);
    return { runs: left("runs"), succeeded: left("succeeded"), escalated: left("escalated"), seconds: left("seconds"), tokens: left("tokens"), cost: left("cost") };
  });
}

/** The last midnights, the oldest first. */
export function midnights(count: number, now: number): Date[] {
  const today = new Date(now);
  today.setHours(0, 0, 0, 0);
  return Array.from({ length: count }, (_, n) => {
    const day = new Date(today);
    day.setDate(day.getDate() - (count - 1 - n));
    return day;
  });
}

import { expect, test } from "vitest";
import type { Report } from "../src/api/schema";
import { meters } from "../src/logic/meters";

const TEAM = {
  kind: "team",
  limits: { max_handoffs: 20, max_steps: 100, max_duration: 600 },
  totals: { handoffs: 5, steps: 6, dispatches: 6, transitions: 0, questions: 0 },
  loop_counters: {},
  running: 60,
  usage: { tokens: 0, cost: 0 },
  last_command: null,
  stop: null,
} as unknown as Report;

test("every rule is metered, the nearest to its limit first", () => {
  const found = meters(TEAM, null, { repeated_pattern: { count: 2, limit: 3 }, no_change: { count: 0, limit: 3 } });
  expect(found.map((one) => [one.rule, one.told])).toEqual([
    ["repeated_pattern", "2 / 3"],
    ["max_handoffs", "5 / 20"],
    ["max_duration", "1 min / 10 min"],
    ["max_steps", "6 / 100"],
    ["no_change", "0 / 3"],
  ]);
});

test("the rule that ended the run stands first, with what it saw", () => {
  const stopped = { ...TEAM, stop: { rule: "no_change", limit: 3, seen: 3 } } as unknown as Report;
  const [first, ...rest] = meters(stopped, null, { no_change: { count: 1, limit: 3 } });
  expect(first).toMatchObject({ rule: "no_change", title: "Turns without a change", used: 3, fired: true });
  expect(rest.map((one) => one.rule)).not.toContain("no_change");
});

import { expect, test } from "vitest";
import type { Run, Step } from "../src/api/schema";
import { citedEvents, effectCalls, ladderCounts } from "../src/logic/stops";

const step = (n: number, text: string): Step => ({ n, place: "coder", agent: "coder@1", text, reason: "" }) as Step;
const run = (alike: object[], more: object = {}): Run =>
  ({ stop: { alike }, handoff_sequence: [{ number: 2, reason: "red" }, { number: 0, reason: "refused" }, { number: 3, reason: "" }], ...more }) as unknown as Run;

test("each cited event stands beside what it was", () => {
  const cited = citedEvents(run([
    { step: 1, kind: "call", what: "coder, bash: same arguments, same answer" },
    { step: 2, kind: "handoff", what: "a -> b" },
    { step: 3, kind: "handoff", what: "b -> a" },
    { step: 9, kind: "text", what: "coder: same text" },
  ]), [step(1, "x".repeat(200))]);
  expect(cited.map((one) => one.citation)).toEqual(["step 1", "handoff 2", "handoff 3", "step 9"]);
  expect(cited[0]?.was).toBe(`coder: ${"x".repeat(160)}…`);
  expect(cited.slice(1).map((one) => one.was)).toEqual(["red", "no reason given", ""]);
});

test("calls of one tool by one agent are one line", () => {
  const effects = [{ tool: "rm", agent: "", step: 1 }, { tool: "mail", agent: "clerk", step: 2 }, { tool: "mail", agent: "clerk", step: 4 }];
  expect(effectCalls(run([], { stop: { alike: [], effects } }))).toEqual([["rm", "", [1]], ["mail", "clerk", [2, 4]]]);
});

test("a run without a stop cites nothing", () => {
  const none = { ...run([]), stop: null } as Run;
  expect(citedEvents(none, [])).toEqual([]);
  expect(effectCalls(none)).toEqual([]);
});

test("what came short of a stop is counted", () => {
  expect(ladderCounts(run([], { nudges: 0, redirects: [], waits: { count: 0 } }))).toBe("");
  expect(ladderCounts(run([], { nudges: 2, redirects: [{}], waits: { count: 0 } }))).toBe("2 nudges, 1 redirect");
});

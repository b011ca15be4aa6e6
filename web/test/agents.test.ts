import { expect, test } from "vitest";
import type { Agent } from "../src/api/schema";
import { channelOf, doing } from "../src/logic/agents";

const AGENT = { enabled: true, state: "IDLE", current_work: [], channels: {} } as unknown as Agent;

test("what an agent does is told, or why it does nothing", () => {
  const told = (change: Partial<Record<keyof Agent, unknown>>): string => doing({ ...AGENT, ...change } as Agent);
  expect(told({})).toContain("nothing is on offer");
  expect(told({ enabled: false })).toContain("disabled");
  expect(told({ state: "OFFLINE" })).toContain("start it again");
  expect(told({ current_work: ["r1.1", "r2.1"] })).toBe("Works on 2 dispatches.");
  expect(told({ current_work: ["r1.1", "reviews.t2"], channels: { reviews: "ACTIVE" } })).toBe("Works on 1 dispatch and 1 turn.");
  expect(told({ channels: { reviews: "QUEUED", plans: "QUEUED", old: "OFFLINE" } })).toBe("Waits for its turn in reviews, plans.");
});

test("a turn is told from a dispatch by its channel", () => {
  const agent = { ...AGENT, channels: { "a.b": "ACTIVE" } } as unknown as Agent;
  expect(channelOf(agent, "a.b.t12")).toBe("a.b");
  expect([channelOf(agent, "a.b"), channelOf(agent, "run.t1"), channelOf(agent, "run.1")]).toEqual([undefined, undefined, undefined]);
});

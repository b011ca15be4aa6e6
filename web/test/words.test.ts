import { expect, test } from "vitest";
import type { Approval, DefinitionDocument, Run, Why } from "../src/api/schema";
import { consequences, nodeTitle, receipt, sentence, stateOf, withoutState } from "../src/logic/words";
import { duration, relative } from "../src/logic/time";

const BUG: DefinitionDocument = {
  nodes: [
    { id: "start", type: "start" },
    { id: "investigation", type: "task", max_attempts: 5, description: "Specialist Investigation: find the cause." },
    { id: "approval", type: "approval", config: { revise_to: "investigation" } },
    { id: "apply", type: "task", description: "Apply and commit: do it." },
    { id: "end", type: "end" },
  ],
  edges: [
    { from_node_id: "approval", to_node_id: "apply" },
    { from_node_id: "apply", to_node_id: "end" },
  ],
};
const TEAM: DefinitionDocument = { agents: [{ id: "planner" }], review: { back_to: "planner" } };
const ASKED = { type: "approval", node_id: "approval" } as Approval;
const RUN = { status: "running", terminal_status: null, attempts: { investigation: 2 }, current_node_ids: ["investigation"] } as unknown as Run;
const NOW = Date.parse("2026-11-16T12:00:40Z");

test("each button says what it will do", () => {
  expect(consequences(ASKED, BUG)).toEqual({
    approve: "goes on to Apply and commit",
    revise: "goes back to Specialist Investigation with your text",
    reject: "ends the run here",
  });
});

test("where there is no way back, a revision is not offered", () => {
  const without = { ...BUG, nodes: BUG.nodes?.map((one) => ({ ...one, config: {} })) };
  expect(consequences(ASKED, without).revise).toBeNull();
});

test("a reject takes the way that is there for failure", () => {
  const failing = { ...BUG, edges: [...(BUG.edges ?? []), { from_node_id: "approval", to_node_id: "end", condition: "failure" }] };
  expect(consequences(ASKED, failing)).toMatchObject({ approve: "goes on to Apply and commit", reject: "goes to the end" });
});

test("in a team the approval is the end, and a revision goes to the planner", () =>
  expect(consequences({ ...ASKED, type: "clarification_request" }, TEAM)).toMatchObject({ approve: "the run is done, with this result", revise: "goes back to Planner with your text" }));

test("an escalation is approved as if it had succeeded", () =>
  expect(consequences({ ...ASKED, type: "escalation", node_id: "apply" }, BUG).approve).toBe("goes on as if Apply and commit had succeeded"));

test("a run at work is told with its attempt and its time", () => {
  const why = { waiting: [{ place: "investigation", code: "claimed", message: "", since: "2026-11-16T12:00:00Z", hint: "" }] } as unknown as Why;
  expect(sentence(RUN, why, BUG, NOW)).toBe("Specialist Investigation is working, attempt 2 of 5, 40 s.");
});

test("a run that nobody works on says why and what to do", () => {
  const why = { waiting: [{ place: "apply", code: "no_agent", message: "nobody is registered for the role 'x'", since: "", hint: "start one" }] } as unknown as Why;
  expect(sentence(RUN, why, BUG, NOW)).toBe("Apply and commit: nobody is registered for the role 'x' (start one).");
});

test("a run always has a sentence, also before anything else is known", () => expect(sentence(RUN, undefined, undefined, NOW)).toBe("At Investigation."));

test("a run that stopped says why in the server's words", () => {
  const run = { ...RUN, status: "ended", terminal_status: "aborted_stuck", stop: { reason: "x" } } as unknown as Run;
  expect(stateOf(run)).toBe("stuck");
  expect(sentence(run, { why: "Stuck: planner and researcher went round 3 times." } as Why, BUG, NOW)).toContain("went round 3 times");
  expect(withoutState("Stuck: planner went round.", "stuck")).toBe("Planner went round.");
});

test("a receipt says where the run goes on, or that it ended", () => {
  expect(receipt("approve", { ...RUN, current_node_ids: ["apply"] }, BUG)).toBe("Approved. The run goes on at Apply and commit.");
  expect(receipt("reject", { ...RUN, status: "ended", terminal_status: "closed_by_human" } as Run, BUG)).toBe("Rejected. The run has ended: closed.");
});

test("a node is called by the head of its description, else by its id", () => {
  expect(nodeTitle({ id: "ceo_approval" })).toBe("Ceo approval");
  expect(nodeTitle({ id: "x", description: "No colon here." })).toBe("X");
});

test("lengths of time have their two largest units", () => {
  expect([0, 0.08, 40, 190, 11_400, 604_800].map(duration)).toEqual(["0 s", "0.08 s", "40 s", "3 min 10 s", "3 h 10 min", "7 d"]);
  expect(relative("2026-11-16T12:05:40Z", NOW)).toBe("in 5 min");
  expect(relative("2026-11-16T12:00:38Z", NOW)).toBe("just now");
});

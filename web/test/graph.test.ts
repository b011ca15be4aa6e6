import { expect, test } from "vitest";
import type { DefinitionDocument, HistoryEvent } from "../src/api/schema";
import { boundsOf, layout, type Point } from "../src/graph/layout";
import { graphOf } from "../src/graph/model";
import { locate } from "../src/logic/locate";
import { merged } from "../src/logic/merge";
import { standing } from "../src/logic/replay";
import { days, midnights } from "../src/logic/series";

const FLOW: DefinitionDocument = {
  nodes: ["start", "a", "b", "c", "d", "end"].map((id) => ({
    id,
    type: id === "start" || id === "end" ? id : "task",
    config: id === "d" ? { on_failure: { rework: "a", max: 3 } } : id === "c" ? { revise_to: "b" } : {},
  })),
  edges: [
    ["start", "a"],
    ["a", "b"],
    ["b", "c"],
    ["c", "d"],
    ["d", "end"],
  ].map(([from, to]) => ({ from_node_id: from as string, to_node_id: to as string })),
};
const TEAM: DefinitionDocument = {
  start: "hub",
  terminator: "x",
  agents: [{ id: "hub", hands_off_to: ["x", "y", "z"] }, ...["x", "y", "z"].map((id) => ({ id, hands_off_to: ["hub"] }))],
};

test("ways back are there, dashed, with their limits", () => {
  const back = graphOf(FLOW).ways.filter((way) => way.back);
  expect(back.map(({ from, to, label, limit }) => [from, to, label, limit])).toEqual([
    ["c", "b", "revise", undefined],
    ["d", "a", "rework", 3],
  ]);
});

test("an agent of a guarded program is called by its name alone", () => {
  const agents = [{ id: "a", role: "guarded:a", hands_off_to: [] }];
  expect(graphOf({ start: "a", terminator: "a", agents }).nodes.map((node) => node.role)).toEqual(["a"]);
});

test.each([2000, 400])("no way is hidden behind a node that it only passes, %i pixels wide", (width) => {
  const graph = graphOf(FLOW);
  const placed = layout(graph, width);
  for (const way of graph.ways) {
    for (const point of between(placed.ways.get(way.id) ?? [])) {
      for (const [id, node] of placed.nodes) {
        if (id === way.from || id === way.to) continue;
        const inside = Math.abs(point.x - node.x) < node.width / 2 && Math.abs(point.y - node.y) < node.height / 2;
        expect(inside, `${way.from} to ${way.to} over ${id}`).toBe(false);
      }
    }
  }
});

function between(points: Point[]): Point[] {
  return points.slice(1).flatMap((to, n) => {
    const from = points[n] as Point;
    return Array.from({ length: 20 }, (_, k) => ({ x: from.x + ((to.x - from.x) * k) / 20, y: from.y + ((to.y - from.y) * k) / 20 }));
  });
}

test("a wide place draws from left to right, a narrow one from top to bottom", () => {
  const at = (width: number): Point => layout(graphOf(FLOW), width).nodes.get("end") as Point;
  expect(at(2000).x).toBeGreaterThan(at(2000).y);
  expect(at(400).y).toBeGreaterThan(at(400).x);
});

test("a team's hub stands in the middle of its ring, and whoever ends the run is marked", () => {
  const graph = graphOf(TEAM);
  expect(layout(graph, 800).nodes.get("hub")).toMatchObject({ x: 0, y: 0 });
  expect(graph.nodes.filter((one) => one.terminator).map((one) => one.id)).toEqual(["x"]);
});

test.each([800, 340])("no agent of a ring stands on another, and nothing is drawn outside of its bounds, %i pixels wide", (width) => {
  const ids = ["a", "b", "c", "d", "e", "f", "g"];
  const graph = graphOf({ start: "hub", agents: [{ id: "hub", hands_off_to: ids }, ...ids.map((id) => ({ id, hands_off_to: ["hub"] }))] });
  const placed = layout(graph, width);
  const boxes = [...placed.nodes.values()];
  boxes.forEach((one, n) =>
    boxes.slice(n + 1).forEach((other) => {
      expect(Math.abs(one.x - other.x) < one.width && Math.abs(one.y - other.y) < one.height).toBe(false);
    }),
  );
  const bounds = boundsOf(graph, placed);
  boxes.forEach((one) => expect([one.x - one.width / 2 >= bounds.x, one.x + one.width / 2 <= bounds.x + bounds.width]).toEqual([true, true]));
});

test("the label of a way back is within the bounds of the drawing", () => {
  const graph = graphOf(FLOW);
  const placed = layout(graph, 340);
  const bounds = boundsOf(graph, placed);
  const rework = graph.ways.find((way) => way.label === "rework");
  expect((placed.labels.get(rework?.id ?? "")?.x ?? 0) + 30).toBeLessThan(bounds.x + bounds.width);
});

test("a definition that names what is not there is drawn without it", () =>
  expect(graphOf({ nodes: [{ id: "a", type: "task" }], edges: [{ from_node_id: "a", to_node_id: "zz" }] }).ways).toEqual([]));

const event = (type: string, more: object): HistoryEvent => ({ execution_id: "r", seq: 0, at: "", actor: "", type, ...more });

test("the slider shows the run as it stood after each event", () => {
  const story = [
    event("started", { place: "start" }),
    event("moved", { source: "start", targets: ["a"], enters: ["a"] }),
    event("moved", { source: "a", targets: ["b"], enters: ["b"] }),
    event("ended", { status: "aborted_stuck" }),
  ];
  expect(standing(story, 1)).toMatchObject({ current: ["start"], done: [] });
  expect(standing(story, 3)).toMatchObject({ current: ["b"], done: ["start", "a"], ways: { "start>a": 1, "a>b": 1 } });
  expect(standing(story, 4)).toMatchObject({ current: [], failed: "b" });
});

test("a refused handoff moves nobody", () => {
  const story = [event("started", { place: "x" }), event("handed_off", { source: "x", target: "y", accepted: false })];
  expect(standing(story, 2).current).toEqual(["x"]);
});

test("an error stands at the line of its place, or of the nearest that is there", () => {
  const text = JSON.stringify({ name: "x", nodes: [{ id: "a" }, { id: "b, \"c\": [", type: "tsk" }], edges: [] }, null, 2);
  const line = (path: string): string => text.split("\n")[locate(text, path) - 1]?.trim() ?? "";
  expect(line("$.nodes[1].type")).toContain('"tsk"');
  expect(line("$.nodes[1].role")).toBe("{");
  expect(line("$.edges[0].to_node_id")).toContain('"edges"');
  expect(line("$.nothing")).toBe("{");
});

test("new rows wait, known ones change in place, and those that no longer fit go", () => {
  const row = (id: string, status = "running") => ({ id, status });
  const shown = [row("5"), row("4"), row("2"), row("1")];
  const found = merged(shown, [], [row("6"), row("5", "ended"), row("2")], false);
  expect(found.items).toEqual([row("5", "ended"), row("2"), row("1")]);
  expect(found.waiting).toEqual([row("6")]);
});

test("a day's figures are what is since its midnight and not since the next", () => {
  const since = (runs: number) => ({ runs, succeeded: runs, escalated: 0, seconds: 0, tokens: 0, cost: runs / 2 });
  expect(days([since(9), since(4), since(0)]).map((one) => [one.runs, one.cost])).toEqual([
    [5, 2.5],
    [4, 2],
    [0, 0],
  ]);
  expect(midnights(14, Date.now())).toHaveLength(14);
});

/** Where everything stands: a workflow from left to right or top to bottom, a team in a ring. */
import dagre from "@dagrejs/dagre";
import type { Graph, GraphWay } from "./model";

export const WIDTH = 168;
export const HEIGHT = 58;
const SMALL = 40;

export interface Point {
  x: number;
  y: number;
}

/** A node: its middle, and how large it is. */
export type Box = Point & { width: number; height: number };

export interface Placed {
  nodes: Map<string, Box>;
  ways: Map<string, Point[]>; // through which points
  labels: Map<string, Point>;
}

/** From left to right where that can be read in so many pixels, else from top to bottom. */
export function layout(graph: Graph, width: number): Placed {
  if (graph.kind === "team") return ring(graph, width < NARROW);
  const across = layered(graph, "LR");
  return boundsOf(graph, across).width * SMALLEST <= width ? across : layered(graph, "TB");
}

const NARROW = 480;
const NARROW_WIDTH = 124;

/** How much smaller than it is meant a drawing may be. */
const SMALLEST = 0.8;

const LETTER = 6.5;

export interface Bounds extends Point {
  width: number;
  height: number;
}

/** Around everything that is drawn, labels too; `x` and `y` are its upper left corner. */
export function boundsOf(graph: Graph, placed: Placed): Bounds {
  const points = [...placed.nodes.values()].flatMap((one) => [
    { x: one.x - one.width / 2, y: one.y - one.height / 2 },
    { x: one.x + one.width / 2, y: one.y + one.height / 2 },
  ]);
  for (const way of placed.ways.values()) points.push(...way);
  for (const way of graph.ways) {
    const at = way.back && placed.labels.get(way.id);
    const half = ((way.label.length + (way.limit ? 4 : 0)) * LETTER) / 2 + 8;
    if (at) points.push({ x: at.x - half, y: at.y }, { x: at.x + half, y: at.y });
  }
  if (!points.length) return { x: 0, y: 0, width: 1, height: 1 };
  const xs = points.map((one) => one.x);
  const ys = points.map((one) => one.y);
  const [x, y] = [Math.min(...xs), Math.min(...ys)];
  return { x, y, width: Math.max(...xs) - x, height: Math.max(...ys) - y };
}

export const sizeOf = (kind: string): { width: number; height: number } =>
  kind === "start" || kind === "end" ? { width: SMALL * 1.6, height: SMALL } : { width: WIDTH, height: HEIGHT };

/** Layers, with every way forwards bent around what it passes, and every way back beside them all. */
function layered(graph: Graph, direction: "LR" | "TB"): Placed {
  const drawing = new dagre.graphlib.Graph({ multigraph: true });
  drawing.setGraph({ rankdir: direction, nodesep: 36, ranksep: direction === "TB" ? 13 : 16, edgesep: 28, marginx: 8, marginy: 8 });
  for (const node of graph.nodes) drawing.setNode(node.id, { ...sizeOf(node.kind) });
  const forwards = graph.ways.filter((way) => !way.back);
  for (const way of forwards) {
    const label = way.label ? { width: way.label.length * 6 + 20, height: 18 } : { width: 8, height: 8 };
    drawing.setEdge(way.from, way.to, { ...label, labelpos: "c" }, way.id);
  }
  dagre.layout(drawing);
  const placed: Placed = { nodes: new Map(), ways: new Map(), labels: new Map() };
  for (const node of graph.nodes) {
    const at = drawing.node(node.id) as Box;
    placed.nodes.set(node.id, { x: at.x, y: at.y, width: at.width, height: at.height });
  }
  for (const way of forwards) {
    const edge = drawing.edge(way.from, way.to, way.id) as { points: Point[]; x?: number; y?: number };
    placed.ways.set(way.id, edge.points);
    placed.labels.set(way.id, edge.x !== undefined && edge.y !== undefined ? { x: edge.x, y: edge.y } : middle(edge.points));
  }
  graph.ways.filter((way) => way.back).forEach((way, n) => besides(placed, way, direction, n));
  return placed;
}

const BESIDE = 26;
const APART = 20;

/** Out at the side, along everything between, and in again: over no node. */
function besides(placed: Placed, way: GraphWay, direction: "LR" | "TB", n: number): void {
  const from = placed.nodes.get(way.from);
  const to = placed.nodes.get(way.to);
  if (!from || !to) return;
  const along = direction === "TB" ? "y" : "x";
  const [low, high] = [Math.min(from[along], to[along]), Math.max(from[along], to[along])];
  const between = [...placed.nodes.values()].filter((one) => one[along] >= low && one[along] <= high);
  const edge = direction === "TB" ? (one: Box) => one.x + one.width / 2 : (one: Box) => one.y + one.height / 2;
  const side = Math.max(...between.map(edge)) + BESIDE + APART * (n % 4);
  const shift = way.from === way.to ? 14 : 0;
  const points =
    direction === "TB"
      ? [{ x: edge(from), y: from.y + shift }, { x: side, y: from.y + shift }, { x: side, y: to.y - shift }, { x: edge(to) + 2, y: to.y - shift }]
      : [{ x: from.x + shift, y: edge(from) }, { x: from.x + shift, y: side }, { x: to.x - shift, y: side }, { x: to.x - shift, y: edge(to) + 2 }];
  placed.ways.set(way.id, points);
  const [a, b] = [points[1] as Point, points[2] as Point];
  // nearer to where it comes from: there no other way leaves or comes in
  placed.labels.set(way.id, { x: a.x + (b.x - a.x) * 0.3, y: a.y + (b.y - a.y) * 0.3 });
}

/** A circle, the first agent at the top; a hub that talks with everybody stands in the middle. */
function ring(graph: Graph, narrow: boolean): Placed {
  const hub = hubOf(graph);
  const around = graph.nodes.filter((one) => one.id !== hub);
  const size = { width: narrow ? NARROW_WIDTH : WIDTH, height: HEIGHT };
  const radius = Math.max(narrow ? 125 : 170, (around.length * (size.width + 24)) / (2 * Math.PI));
  const [wide, high] = narrow ? [1, 1] : [1.15, 0.8]; // where there is room wider than high, as the nodes are
  const placed: Placed = { nodes: new Map(), ways: new Map(), labels: new Map() };
  if (hub) placed.nodes.set(hub, { x: 0, y: 0, ...size });
  around.forEach((node, n) => {
    const angle = (2 * Math.PI * n) / around.length - Math.PI / 2;
    placed.nodes.set(node.id, { x: Math.cos(angle) * radius * wide, y: Math.sin(angle) * radius * high, ...size });
  });
  for (const way of graph.ways) {
    const points = bent(placed, way);
    placed.ways.set(way.id, points);
    placed.labels.set(way.id, halfway(points));
  }
  return placed;
}

/** Whoever hands over to everybody else and gets it back from all. */
function hubOf(graph: Graph): string | undefined {
  const others = graph.nodes.length - 1;
  return graph.nodes.find((node) => {
    const out = graph.ways.filter((way) => way.from === node.id && way.to !== node.id).length;
    const into = graph.ways.filter((way) => way.to === node.id && way.from !== node.id).length;
    return others > 2 && out === others && into === others;
  })?.id;
}

const SHORT = 80;

/** From border to border, a little to the right, so that there and back are two lines. */
function bent(placed: Placed, way: GraphWay): Point[] {
  const from = placed.nodes.get(way.from);
  const to = placed.nodes.get(way.to);
  if (!from || !to) return [];
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  const bend = 22;
  const control = { x: (from.x + to.x) / 2 - (dy / length) * bend, y: (from.y + to.y) / 2 + (dx / length) * bend };
  return [border(from, control), control, border(to, control)];
}

function border(node: Box, towards: Point): Point {
  const [dx, dy] = [towards.x - node.x, towards.y - node.y];
  const scale = Math.min((node.width / 2 + 3) / (Math.abs(dx) || 1e-6), (node.height / 2 + 3) / (Math.abs(dy) || 1e-6));
  return { x: node.x + dx * scale, y: node.y + dy * scale };
}

/** On the curve itself, nearer to where it comes from: there and back do not meet. Of a short one in the middle. */
function halfway([a, control, b]: Point[]): Point {
  if (!a || !control || !b) return { x: 0, y: 0 };
  const t = Math.hypot(b.x - a.x, b.y - a.y) < SHORT ? 0.5 : 0.36;
  const mix = (p: number, q: number, r: number): number => (1 - t) ** 2 * p + 2 * t * (1 - t) * q + t * t * r;
  return { x: mix(a.x, control.x, b.x), y: mix(a.y, control.y, b.y) };
}

function middle(points: Point[]): Point {
  return points[Math.floor(points.length / 2)] ?? { x: 0, y: 0 };
}

/** A smooth line through the points; one with corners, for a way beside, keeps them, rounded. */
export function pathThrough(points: Point[], cornered = false): string {
  const [first, ...rest] = points;
  if (!first) return "";
  if (cornered && rest.length === 3) return rounded([first, ...rest]);
  if (rest.length === 2) return `M${first.x},${first.y} Q${rest[0]?.x},${rest[0]?.y} ${rest[1]?.x},${rest[1]?.y}`;
  let path = `M${first.x},${first.y}`;
  for (let n = 0; n < rest.length - 1; n++) {
    const [at, after] = [rest[n] as Point, rest[n + 1] as Point];
    const end = n === rest.length - 2 ? after : { x: (at.x + after.x) / 2, y: (at.y + after.y) / 2 };
    path += ` Q${at.x},${at.y} ${end.x},${end.y}`;
  }
  return rest.length === 1 ? `${path} L${rest[0]?.x},${rest[0]?.y}` : path;
}

const ROUND = 10;

function rounded(points: Point[]): string {
  let path = `M${points[0]?.x},${points[0]?.y}`;
  for (let n = 1; n < points.length - 1; n++) {
    const [before, at, after] = [points[n - 1] as Point, points[n] as Point, points[n + 1] as Point];
    const [into, out] = [towards(at, before), towards(at, after)];
    path += ` L${into.x},${into.y} Q${at.x},${at.y} ${out.x},${out.y}`;
  }
  return `${path} L${points.at(-1)?.x},${points.at(-1)?.y}`;
}

function towards(from: Point, to: Point): Point {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const step = Math.min(ROUND, length / 2) / length;
  return { x: from.x + (to.x - from.x) * step, y: from.y + (to.y - from.y) * step };
}

/** A definition, drawn; with a run's standing, where it is and how often it went each way. */
import { BaseEdge, EdgeLabelRenderer, Handle, Position, ReactFlow, type Edge, type EdgeProps, type Node, type NodeProps, type ReactFlowInstance } from "@xyflow/react";
import "@xyflow/react/dist/base.css";
import { memo, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { DefinitionDocument } from "../api/schema";
import { wayKey, type Standing } from "../logic/replay";
import { boundsOf, layout, pathThrough, type Point } from "./layout";
import { graphOf, type GraphNode, type GraphWay } from "./model";
import "./graph.css";

interface NodeData extends Record<string, unknown> {
  node: GraphNode;
  standing: "now" | "done" | "failed" | "ahead";
  attempts: number;
}
interface WayData extends Record<string, unknown> {
  way: GraphWay;
  points: Point[];
  label: Point;
  count: number;
  since: number | undefined; // the last progress, where that is what is limited
}

interface Props {
  document: DefinitionDocument;
  standing?: Standing;
  attempts?: Record<string, number>;
  counters?: Record<string, { count: number; limit: number | null }>;
}

export default memo(function GraphView({ document, standing, attempts, counters }: Props) {
  const figure = useRef<HTMLElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = figure.current;
    if (!element) return undefined;
    const sizes = new ResizeObserver(() => setWidth(element.clientWidth));
    sizes.observe(element);
    return () => sizes.disconnect();
  }, []);
  const graph = useMemo(() => graphOf(document), [document]);
  const placed = useMemo(() => layout(graph, width), [graph, width]);
  const nodes = graph.nodes.map((node): Node<NodeData> => {
    const at = placed.nodes.get(node.id) ?? { x: 0, y: 0, width: 0, height: 0 };
    return {
      id: node.id,
      type: "place",
      position: { x: at.x - at.width / 2, y: at.y - at.height / 2 },
      width: at.width,
      height: at.height,
      data: { node, standing: standingOf(node.id, standing), attempts: attempts?.[node.id] ?? 0 },
    };
  });
  const edges = graph.ways.map((way): Edge<WayData> => {
    const counter = counters?.[`${way.from}_to_${way.to}`];
    return {
      id: way.id,
      source: way.from,
      target: way.to,
      type: "way",
      data: {
        way: counter?.limit ? { ...way, limit: counter.limit } : way,
        points: placed.ways.get(way.id) ?? [],
        label: placed.labels.get(way.id) ?? { x: 0, y: 0 },
        count: standing?.ways[wayKey(way.from, way.to)] ?? 0,
        since: counter?.count,
      },
    };
  });
  const bounds = boundsOf(graph, placed);
  const [whole, high] = [bounds.width + MARGIN, bounds.height + MARGIN];
  const shape = { "--graph-ratio": high / whole, "--graph-height": `${Math.min(HIGHEST, high)}px` };
  const fit = (flow: ReactFlowInstance<Node<NodeData>, Edge<WayData>>): void => {
    const { clientWidth = whole, clientHeight = high } = figure.current ?? {};
    const zoom = Math.min(LARGEST, clientWidth / whole, clientHeight / high);
    void flow.setViewport({ zoom, x: clientWidth / 2 - (bounds.x + bounds.width / 2) * zoom, y: clientHeight / 2 - (bounds.y + bounds.height / 2) * zoom });
  };
  return (
    <figure ref={figure} className={`graph graph-${graph.kind}`} style={shape as React.CSSProperties}>
      <ReactFlow
        key={`${graph.nodes.length}-${graph.ways.length}-${width}`}
        nodes={nodes}
        edges={edges}
        nodeTypes={NODES}
        edgeTypes={EDGES}
        onInit={fit}
        minZoom={0.2}
        maxZoom={2}
        nodesDraggable={false}
        nodesConnectable={false}
        nodesFocusable={false}
        edgesFocusable={false}
        elementsSelectable={false}
        zoomOnScroll={false}
        preventScrolling={false}
        proOptions={{ hideAttribution: true }}
        aria-label="The definition as a graph"
      />
      <figcaption className="sr">{inWords(document, standing)}</figcaption>
    </figure>
  );
});

const MARGIN = 32;
const HIGHEST = 560; // pixels, then it is drawn smaller
const LARGEST = 1.1; // times its size
const NODES = { place: PlaceNode };
const EDGES = { way: WayEdge };

function standingOf(id: string, standing: Standing | undefined): NodeData["standing"] {
  if (standing?.failed === id) return "failed";
  if (standing?.current.includes(id)) return "now";
  return standing?.done.includes(id) ? "done" : "ahead";
}

function PlaceNode({ data }: NodeProps<Node<NodeData>>) {
  const { node, standing, attempts } = data;
  return (
    <div className={`node node-${node.kind} node-${standing}${node.terminator ? " node-terminator" : ""}`}>
      <Handle type="target" position={Position.Left} isConnectable={false} />
      <span className="node-title">{node.title}</span>
      {node.kind !== "start" && node.kind !== "end" && (
        <span className="node-role">
          {node.kind === "approval" || node.kind === "review" ? "◆ " : ""}
          {node.first ? "first" : node.role === node.id ? "" : node.role}
          {node.terminator ? " ends the run" : ""}
          {attempts > 1 ? ` ×${attempts}` : ""}
        </span>
      )}
      {standing === "now" && <span className="sr">the run is here</span>}
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </div>
  );
}

function WayEdge({ id, data }: EdgeProps<Edge<WayData>>) {
  if (!data) return null;
  const { way, points, label, count, since } = data;
  const told = labelOf(way, count, since);
  const near = way.limit && (since ?? count) >= way.limit * 0.75;
  return (
    <>
      <defs>
        <marker id={`arrow-${id}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
          <path d="M0,0 L8,4 L0,8 z" className={count ? "arrow taken" : "arrow"} />
        </marker>
      </defs>
      <BaseEdge id={id} path={pathThrough(points, way.back)} markerEnd={`url(#arrow-${id})`} className={`way${way.back ? " way-back" : ""}${count ? " way-taken" : ""}`} />
      {told && (
        <EdgeLabelRenderer>
          <span className={`way-label${near ? " way-near" : ""}${count ? " way-counted" : ""}`} style={{ transform: `translate(-50%, -50%) translate(${label.x}px, ${label.y}px)` }}>
            {told}
          </span>
        </EdgeLabelRenderer>
      )}
    </>
  );
}

function labelOf(way: GraphWay, count: number, since: number | undefined): string {
  const used = since ?? (way.back ? count : 0);
  const isCounted = way.limit && (used || way.back);
  const figure = isCounted ? `${used}/${way.limit}` : count > (way.limit ? 0 : 1) ? `×${count}` : "";
  return [way.label, figure].filter(Boolean).join(" ");
}

function inWords(document: DefinitionDocument, standing: Standing | undefined): string {
  const graph = graphOf(document);
  const ways = graph.ways.map((way) => `${way.from} to ${way.to}${way.back ? ", back" : ""}`).join("; ");
  const at = standing?.current.length ? ` The run is at ${standing.current.join(", ")}.` : "";
  return `${graph.nodes.length} places. Ways: ${ways}.${at}`;
}

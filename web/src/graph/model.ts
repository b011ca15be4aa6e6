/** A definition as a drawing: nodes, ways, and which of them lead back. No positions yet. */
import type { DefinitionDocument } from "../api/schema";
import { nodeTitle } from "../logic/words";

export interface GraphNode {
  id: string;
  title: string;
  kind: string; // start, end, task, approval, decision, merge, agent, review
  role: string;
  terminator?: boolean;
  first?: boolean;
}

export interface GraphWay {
  id: string;
  from: string;
  to: string;
  label: string;
  back: boolean;
  limit?: number;
}

export interface Graph {
  kind: "workflow" | "team";
  nodes: GraphNode[];
  ways: GraphWay[];
}

export function graphOf(document: DefinitionDocument): Graph {
  return document.agents ? team(document) : workflow(document);
}

function workflow(document: DefinitionDocument): Graph {
  const nodes = (document.nodes ?? []).map((node): GraphNode => ({
    id: node.id,
    title: nodeTitle(node),
    kind: node.type,
    role: node.role ?? "",
  }));
  const ways: GraphWay[] = (document.edges ?? []).map((edge, n) => ({
    id: `e${n}`,
    from: edge.from_node_id,
    to: edge.to_node_id,
    label: edge.condition ?? "",
    back: false,
  }));
  for (const node of document.nodes ?? []) {
    const { on_failure: rework, revise_to: revise } = node.config ?? {};
    if (rework) ways.push({ id: `r-${node.id}`, from: node.id, to: rework.rework, label: "rework", back: true, limit: rework.max });
    if (revise) ways.push({ id: `p-${node.id}`, from: node.id, to: revise, label: "revise", back: true });
  }
  return { kind: "workflow", nodes, ways: known(nodes, ways) };
}

function team(document: DefinitionDocument): Graph {
  const agents = document.agents ?? [];
  const nodes = agents.map((agent): GraphNode => ({
    id: agent.id,
    title: nodeTitle(undefined, agent.id),
    kind: "agent",
    role: (agent.role ?? agent.id).replace(/^guarded:/, ""),
    terminator: agent.id === document.terminator,
    first: agent.id === document.start,
  }));
  const review = document.review;
  if (review) nodes.push({ id: "review", title: "Review", kind: "review", role: "a person", terminator: !document.terminator });
  const limit = typeof document.stop_rules?.max_edge === "number" ? document.stop_rules.max_edge : 8;
  const ways = agents.flatMap((agent) =>
    (agent.hands_off_to ?? []).map((to): GraphWay => ({ id: wayId(agent.id, to), from: agent.id, to, label: "", back: false, limit })),
  );
  for (const after of review?.after ?? []) {
    if (!ways.some((one) => one.from === after && one.to === "review"))
      ways.push({ id: wayId(after, "review"), from: after, to: "review", label: "", back: false });
  }
  if (review?.back_to) ways.push({ id: wayId("review", review.back_to), from: "review", to: review.back_to, label: "revise", back: true });
  return { kind: "team", nodes, ways: known(nodes, ways) };
}

const wayId = (from: string, to: string): string => `${from}>${to}`;

/** Only ways between nodes that are there: a definition that is being written may name others. */
function known(nodes: GraphNode[], ways: GraphWay[]): GraphWay[] {
  const ids = new Set(nodes.map((one) => one.id));
  return ways.filter((one) => ids.has(one.from) && ids.has(one.to));
}

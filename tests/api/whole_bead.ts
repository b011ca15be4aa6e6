/** A whole bead by openapi-fetch, with the types that openapi-typescript made of the document. */
import createClient from "openapi-fetch";
import type { paths } from "./generated.js";

const definition = {
  id: "asks",
  name: "asks",
  kind: "workflow",
  nodes: [
    { id: "start", type: "start" },
    { id: "fix", type: "task", role: "backend-engineer" },
    { id: "look", type: "approval", role: "ceo", config: { revise_to: "fix" } },
    { id: "end", type: "end" },
  ],
  edges: [
    { from_node_id: "start", to_node_id: "fix" },
    { from_node_id: "fix", to_node_id: "look" },
    { from_node_id: "look", to_node_id: "end" },
  ],
};

const [url, agentToken, ceoToken] = process.argv.slice(2) as [string, string, string];
const connect = (token: string) =>
  createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${token}` } });
const agent = connect(agentToken);
const ceo = connect(ceoToken);

function taken<T>({ data, error }: { data?: T; error?: { detail?: string } }): T {
  if (data === undefined) throw new Error(error?.detail ?? "no answer");
  return data;
}

taken(await ceo.POST("/api/v1/workflows", { body: definition }));
const bead = taken(await ceo.POST("/api/v1/beads", { body: { title: "500 on /orders", workflow_id: "asks" } }));
taken(await agent.POST("/api/v1/agents", { body: { id: "coder-1", roles: ["backend-engineer"] } }));
const work = taken(await agent.POST("/api/v1/dispatches/claim", { body: { agent_id: "coder-1", wait: 10 } }));
if (work.kind !== "step") throw new Error("a turn is no dispatch");
const at = { params: { path: { dispatch_id: work.id } } };
const lease = taken(await agent.POST("/api/v1/dispatches/{dispatch_id}/heartbeat", { ...at, body: { fence: work.fence } }));
if (lease.ended) throw new Error(lease.reason);
const result = { fence: work.fence, outcome: "success" as const, text: "fixed", usage: { tokens: 5 } };
const receipt = taken(await agent.POST("/api/v1/dispatches/{dispatch_id}/result", { ...at, body: result }));
if (!receipt.accepted) throw new Error(receipt.reason);
const open = taken(await ceo.GET("/api/v1/approvals", { params: { query: { status: "open" } } }));
const [question] = open.items;
if (!question) throw new Error("nobody is asked");
taken(
  await ceo.POST("/api/v1/approvals/{approval_id}/answer", {
    params: { path: { approval_id: question.id } },
    body: { text: "OK", digest: question.digest },
  }),
);
const run = taken(
  await ceo.GET("/api/v1/executions/{execution_id}", {
    params: { path: { execution_id: bead.execution_id ?? "" }, query: { wait: 10 } },
  }),
);
console.log(run.terminal_status, run.usage.tokens);

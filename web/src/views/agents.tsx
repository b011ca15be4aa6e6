/** Who works here: their state, what they do and for how long, and why they do nothing. */
import { useState } from "react";
import { ask } from "../api/client";
import { everything, useQuery } from "../api/query";
import type { Agent, Page } from "../api/schema";
import { channelOf, doing } from "../logic/agents";
import { agentName, type State } from "../logic/words";
import { useMe } from "../me";
import { Empty, Id, Link, Loaded, Moment, PageHead, StateBadge, Trouble } from "../ui/atoms";

const STATES: Record<string, [State, string]> = {
  ACTIVE: ["running", "at work"],
  QUEUED: ["running", "in the queue"],
  WAITING: ["waiting", "waits for somebody"],
  IDLE: ["closed", "idle"],
  OFFLINE: ["stuck", "offline"],
};

export function Agents() {
  const agents = useQuery<Page<Agent>>("/agents?limit=200", everything);
  return (
    <>
      <PageHead title="Agents" />
      <Loaded of={agents}>
        {({ items }) =>
          items.length ? (
            <ul className="cards">
              {items.map((one) => (
                <li key={one.id}>
                  <Card agent={one} again={agents.again} />
                </li>
              ))}
            </ul>
          ) : (
            <Empty title="No agent has registered" command={"handrail serve --builtin-agents\nhandrail worker my_agents:worker --server http://127.0.0.1:8080"}>
              Start the built-in ones with the server, or your own beside it:
            </Empty>
          )
        }
      </Loaded>
    </>
  );
}

function Card({ agent, again }: { agent: Agent; again: () => void }) {
  const me = useMe();
  const [error, setError] = useState<Error>();
  const [state, word] = STATES[agent.state] ?? ["closed", agent.state];
  const turn = (): void =>
    void ask("PATCH", `/agents/${encodeURIComponent(agent.id)}`, { body: { enabled: !agent.enabled } })
      .then(again)
      .catch((problem: Error) => setError(problem));
  return (
    <article className="panel agent">
      <header>
        <h2 title={agent.id}>{agentName(agent.id)}</h2>
        <StateBadge state={agent.enabled ? state : "paused"} word={agent.enabled ? word : "disabled"} />
      </header>
      <p>{doing(agent)}</p>
      {agent.current_work.length > 0 && (
        <ul className="work">
          {agent.current_work.slice(0, 5).map((one) => (
            <li key={one}>
              <Work id={one} agent={agent} />
            </li>
          ))}
        </ul>
      )}
      <p className="faint small">
        {agent.roles.join(", ")} · up to {agent.capacity} at once · {agent.in_process ? "in the server" : "from outside"} · heard of <Moment at={agent.last_seen} />
      </p>
      {me.atLeast("ceo") && !agent.in_process && (
        <button type="button" onClick={turn}>
          {agent.enabled ? "Disable" : "Enable"}
        </button>
      )}
      {error && <Trouble error={error} />}
    </article>
  );
}

/** What it works on: a dispatch of a run, or a turn in a channel. */
function Work({ id, agent }: { id: string; agent: Agent }) {
  const channel = channelOf(agent, id);
  if (channel !== undefined) {
    return (
      <>
        <Link to={`/channels/${encodeURIComponent(channel)}`}>turn in {channel}</Link> <Id id={id} />
      </>
    );
  }
  return (
    <>
      <Link to={`/runs/${id.split(".")[0] ?? id}`}>work</Link> <Id id={id} />
    </>
  );
}

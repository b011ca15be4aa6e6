/** Who is in a channel, in which state; who else may be let in. */
import { useState } from "react";
import { ask, post } from "../api/client";
import { put, useQuery } from "../api/query";
import type { Agent, Channel, Page } from "../api/schema";
import { MEMBER_STATES } from "../logic/channels";
import { duration } from "../logic/time";
import { StateBadge } from "../ui/atoms";
import { base } from "./conversation";

interface Props {
  channel: Channel;
  may: boolean;
  tried: (work: () => Promise<void>) => Promise<void>;
}

export function Members({ channel, may, tried }: Props) {
  const remove = (agent: string): void =>
    void tried(async () => {
      await ask("DELETE", `${base(channel.id)}/members/${encodeURIComponent(agent)}`);
      put(base(channel.id), await ask<Channel>("GET", base(channel.id)));
    });
  return (
    <section className="panel">
      <h2>
        Agents <span className="faint">{channel.members.length || ""}</span>
      </h2>
      <ul className="members">
        {channel.members.map((one) => {
          const [state, word] = MEMBER_STATES[one.state] ?? ["closed", one.state];
          return (
            <li key={one.agent_id}>
              <span className="cut" title={one.agent_id}>
                {one.agent_id}
                {one.timeoutSeconds !== null && <small className="faint"> {duration(one.timeoutSeconds)} a turn</small>}
              </span>
              <StateBadge state={one.enabled ? state : "paused"} word={one.enabled ? (one.busy && one.state === "QUEUED" ? "works elsewhere" : word) : "disabled"} />
              {may && (
                <button type="button" className="plain" aria-label={`Remove ${one.agent_id}`} title="Remove from this channel" onClick={() => remove(one.agent_id)}>
                  ×
                </button>
              )}
            </li>
          );
        })}
      </ul>
      {may && <LetIn channel={channel} tried={tried} />}
    </section>
  );
}

function LetIn({ channel, tried }: Pick<Props, "channel" | "tried">) {
  const agents = useQuery<Page<Agent>>("/agents?limit=200");
  const [agent, setAgent] = useState("");
  const here = new Set(channel.members.filter((one) => one.state !== "IDLE" && one.state !== "OFFLINE").map((one) => one.agent_id));
  const others = (agents.data?.items ?? []).filter((one) => !one.in_process && one.enabled && one.state !== "OFFLINE" && !here.has(one.id));
  const chosen = others.find((one) => one.id === agent)?.id ?? others[0]?.id;
  if (!chosen) {
    return (
      <p className="faint small">
        No other agent from outside is online; <code>handrail worker</code> starts one.{" "}
        <button type="button" className="plain" onClick={agents.again}>
          Look again
        </button>
      </p>
    );
  }
  const add = (): void => void tried(async () => put(base(channel.id), await post<Channel>(`${base(channel.id)}/members`, { agent_id: chosen })));
  return (
    <div className="turn-acts">
      <select aria-label="Which agent" value={chosen} onFocus={agents.again} onChange={(event) => setAgent(event.target.value)}>
        {others.map((one) => (
          <option key={one.id} value={one.id}>
            {one.id}
          </option>
        ))}
      </select>
      <button type="button" onClick={add}>
        Let in
      </button>
    </div>
  );
}

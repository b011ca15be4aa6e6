/** Whose turn it is: the queue as a ring, the turn's clock, and what a person may do to it. */
import { useState } from "react";
import type { Channel } from "../api/schema";
import { clockOf, countdown, initials, seats, turnSentence, type Seat } from "../logic/channels";
import { duration } from "../logic/time";
import { useNow } from "../ui/atoms";
import type { Act } from "./conversation";

const RADIUS = 84;
const HALF = 130;
const INNER = 42;
const ROUND = 2 * Math.PI * INNER;

interface Props {
  channel: Channel;
  may: boolean;
  busy: boolean;
  act: Act;
}

export function Turn({ channel, may, busy, act }: Props) {
  const now = useNow();
  const { turn } = channel;
  return (
    <section className="panel turn" aria-label="Whose turn it is">
      <Ring channel={channel} now={now} />
      <div className="turn-told">
        <p role="status">
          {turnSentence(channel, now)}
          {channel.next && !channel.paused && turn && <span className="faint"> Then {channel.next}.</span>}
        </p>
      </div>
      {may && turn?.wait_until && (
        <div className="turn-acts">
          <button type="button" className="primary" disabled={busy} onClick={() => void act({ action: "resume", agent_id: turn.agent_id, turn: turn.number })}>
            Resume <small>{duration(turn.seconds_left)} left</small>
          </button>
          <button type="button" disabled={busy} onClick={() => void act({ action: "override", agent_id: turn.agent_id, to: "ACTIVE" })}>
            Override: fresh time
          </button>
          <button type="button" disabled={busy} onClick={() => void act({ action: "override", agent_id: turn.agent_id, to: "QUEUED" })}>
            Override: end the turn
          </button>
        </div>
      )}
      {may && !turn && !channel.paused && <Grant channel={channel} busy={busy} act={act} />}
    </section>
  );
}

/** The turn for somebody, out of order. */
function Grant({ channel, busy, act }: { channel: Channel; busy: boolean; act: Act }) {
  const free = channel.members.filter((one) => one.enabled && !one.busy && (one.state === "QUEUED" || one.state === "IDLE"));
  const [chosen, setChosen] = useState("");
  const agent = free.find((one) => one.agent_id === chosen) ?? free.find((one) => one.agent_id === channel.next) ?? free[0];
  if (!agent) return null;
  return (
    <div className="turn-acts">
      <select aria-label="To whom" value={agent.agent_id} onChange={(event) => setChosen(event.target.value)}>
        {free.map((one) => (
          <option key={one.agent_id} value={one.agent_id}>
            {one.agent_id}
          </option>
        ))}
      </select>
      <button type="button" disabled={busy} onClick={() => void act({ action: "grant", agent_id: agent.agent_id })}>
        Grant the turn
      </button>
    </div>
  );
}

function Ring({ channel, now }: { channel: Channel; now: number }) {
  const { seats: placed, hidden } = seats(channel, RADIUS);
  const clock = channel.turn && clockOf(channel.turn, now);
  const paused = Boolean(channel.turn?.wait_until);
  const order = channel.queue.length ? `The queue: ${channel.queue.join(", ")}` : "The queue is empty";
  return (
    <svg className="ring" viewBox={`${-HALF} ${-HALF} ${2 * HALF} ${2 * HALF}`} role="img" aria-label={order}>
      <circle r={RADIUS} className="ring-line" />
      <circle r={INNER} className="ring-clock" />
      {clock && <circle r={INNER} className={paused ? "ring-left ring-paused" : "ring-left"} strokeDasharray={`${ROUND * clock.share} ${ROUND}`} transform="rotate(-90)" />}
      <text className="ring-time" y={clock ? 2 : 5}>
        {clock ? countdown(clock.seconds) : "–"}
      </text>
      {clock && (
        <text className="ring-word" y={19}>
          {paused ? "paused" : "left"}
        </text>
      )}
      {placed.map((one) => (
        <Place key={one.agent} seat={one} channel={channel} />
      ))}
      {hidden > 0 && (
        <text className="ring-word" y={34}>
          +{hidden}
        </text>
      )}
    </svg>
  );
}

function Place({ seat, channel }: { seat: Seat; channel: Channel }) {
  const holds = channel.turn?.agent_id === seat.agent;
  const state = holds ? (channel.active ? "active" : "waiting") : "queued";
  const busy = channel.members.some((one) => one.agent_id === seat.agent && one.busy);
  const name = seat.agent.length > 12 ? `${seat.agent.slice(0, 11)}…` : seat.agent;
  return (
    <g className={`seat seat-${state}${busy && !holds ? " seat-busy" : ""}`} transform={`translate(${seat.x} ${seat.y})`}>
      <circle r={20} />
      {seat.agent === channel.next && !holds && <circle r={24} className="seat-next" />}
      <text y={5}>{initials(seat.agent)}</text>
      <text className="seat-name" y={seat.y < -1 ? -28 : 38}>
        {name}
      </text>
    </g>
  );
}

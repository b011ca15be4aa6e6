/** What an agent does, or why it does nothing, in words. */
import type { Agent } from "../api/schema";

/** The channel in which this work is a turn; undefined if it is a dispatch of a run. */
export function channelOf(agent: Pick<Agent, "channels">, work: string): string | undefined {
  const name = /^(.*)\.t\d+$/s.exec(work)?.[1];
  return name !== undefined && name in agent.channels ? name : undefined;
}

export function doing(agent: Pick<Agent, "enabled" | "state" | "current_work" | "channels">): string {
  if (!agent.enabled) return "Somebody has disabled it: it is given nothing.";
  if (agent.state === "OFFLINE") return "It has not been heard of; start it again.";
  const turns = agent.current_work.filter((one) => channelOf(agent, one) !== undefined).length;
  const dispatches = agent.current_work.length - turns;
  const told = [counted(dispatches, "dispatch", "dispatches"), counted(turns, "turn", "turns")].filter(Boolean);
  if (told.length) return `Works on ${told.join(" and ")}.`;
  const waits = Object.keys(agent.channels).filter((name) => agent.channels[name] === "QUEUED");
  return waits.length ? `Waits for its turn in ${waits.join(", ")}.` : "Idle: nothing is on offer for its roles.";
}

const counted = (count: number, one: string, many: string): string => (count ? `${count} ${count === 1 ? one : many}` : "");

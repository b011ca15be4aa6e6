/** What a stop cites, each event beside what it was. */
import type { Run, Step } from "../api/schema";
import { agentName } from "./words";

const WORDS_SHOWN = 160;

export interface Cited {
  citation: string;
  what: string;
  was: string;
}

/** The cited events in order: what was alike in each, and what the record says of it. */
export function citedEvents(run: Run, steps: Step[]): Cited[] {
  const stop = run.stop;
  if (!stop) return [];
  const handoffs = new Map(run.handoff_sequence.filter((one) => one.number > 0).map((one) => [one.number, one]));
  const byNumber = new Map(steps.map((one) => [one.n, one]));
  return stop.alike.map(({ step, kind, what }) => {
    if (kind === "handoff") {
      const handoff = handoffs.get(step);
      return { citation: `handoff ${step}`, what, was: handoff ? handoff.reason || "no reason given" : "" };
    }
    const taken = byNumber.get(step);
    return { citation: `step ${step}`, what, was: taken ? wasOf(taken) : "" };
  });
}

function wasOf(step: Step): string {
  const said = step.text || step.reason;
  const words = said.length > WORDS_SHOWN ? `${said.slice(0, WORDS_SHOWN)}…` : said;
  return words && `${agentName(step.agent || step.place)}: ${words}`;
}

/** The tools with effects since the last progress, each with the steps that called it. */
export function effectCalls(run: Run): [string, string, number[]][] {
  const calls = new Map<string, [string, string, number[]]>();
  for (const { tool, agent, step } of run.stop?.effects ?? []) {
    const known = calls.get(`${tool} ${agent}`);
    if (known) known[2].push(step);
    else calls.set(`${tool} ${agent}`, [tool, agent, [step]]);
  }
  return [...calls.values()];
}

/** What came short of a stop: "2 nudges, 1 redirect". */
export function ladderCounts(run: Run): string {
  return [counted(run.nudges, "nudge"), counted(run.redirects.length, "redirect"), counted(run.waits.count, "wait")].filter(Boolean).join(", ");
}

const counted = (n: number, noun: string): string => (n ? `${n} ${noun}${n === 1 ? "" : "s"}` : "");

/** Runs are filtered by words in the search box: `status:waiting workflow:helpdesk printer`. */
import { seconds } from "./time";

export interface Filter {
  status?: string;
  terminal_status?: string;
  workflow_id?: string;
  since?: string;
  ended_since?: string;
  ended_before?: string;
  q?: string;
}

export const STATUSES = ["running", "waiting", "paused", "ended"];
export const ENDINGS: Record<string, string> = {
  done: "done_success",
  partial: "done_partial",
  stuck: "aborted_stuck",
  constraint: "aborted_constraint",
  closed: "closed_by_human",
};

/** What to ask for, and what of the text was not understood. */
export function read(text: string, now: number): { filter: Filter; wrong: string[] } {
  const filter: Filter = {};
  const wrong: string[] = [];
  const plain: string[] = [];
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const at = word.indexOf(":");
    const take = at > 0 ? TAKES[word.slice(0, at).toLowerCase()] : undefined;
    if (!take) plain.push(word);
    else if (!take(filter, word.slice(at + 1), now)) wrong.push(word);
  }
  if (plain.length) filter.q = plain.join(" ");
  return { filter, wrong };
}

type Takes = (filter: Filter, value: string, now: number) => boolean;

const TAKES: Record<string, Takes> = {
  status: (filter, value) => {
    if (STATUSES.includes(value)) filter.status = value;
    else if (ENDINGS[value]) filter.terminal_status = ENDINGS[value];
    else return false;
    return true;
  },
  workflow: (filter, value) => {
    if (value) filter.workflow_id = value;
    return Boolean(value);
  },
  since: (filter, value, now) => {
    const length = seconds(value);
    if (length === undefined) return false;
    // whole minutes, so that the same words are the same question for a while
    filter.since = new Date(Math.floor((now - length * 1000) / 60_000) * 60_000).toISOString();
    return true;
  },
  ended: (filter, value) => {
    const [year, month, day] = /^(\d{4})-(\d\d)-(\d\d)$/.exec(value)?.slice(1).map(Number) ?? [];
    if (!year || !month || !day) return false;
    filter.ended_since = new Date(year, month - 1, day).toISOString(); // as whoever looks has their days
    filter.ended_before = new Date(year, month - 1, day + 1).toISOString();
    return true;
  },
};

/** The word for the runs that ended on that day. */
export function endedOn(day: Date): string {
  const two = (figure: number): string => String(figure).padStart(2, "0");
  return `ended:${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())}`;
}

/** The text with that word in it, or without it if it was there. */
export function toggled(text: string, name: string, value: string): string {
  const word = `${name}:${value}`;
  const words = text.split(/\s+/).filter(Boolean);
  const others = words.filter((one) => !one.toLowerCase().startsWith(`${name}:`));
  return (words.includes(word) ? others : [word, ...others]).join(" ");
}

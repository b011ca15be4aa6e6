/** Moments and durations in words. */
const UNITS: [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

/** "3 h 10 min", "40 s", "0.08 s": the two largest units. */
export function duration(seconds: number): string {
  if (seconds < 0.0005) return "0 s";
  if (seconds < 1) return `${Number(seconds.toPrecision(2))} s`;
  const parts: string[] = [];
  let left = Math.round(seconds);
  for (const [size, name] of UNITS) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count) parts.push(`${count} ${name}`);
    else if (parts.length) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/** "just now", "5 min ago", "in 6 d". */
export function relative(moment: string, now: number): string {
  const seconds = (Date.parse(moment) - now) / 1000;
  const size = Math.abs(seconds);
  if (size < 5) return "just now";
  const [unit, name] = UNITS.find(([length]) => size >= length) ?? [1, "s"];
  const told = `${Math.floor(size / unit)} ${name}`;
  return seconds > 0 ? `in ${told}` : `${told} ago`;
}

const CLOCK = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" }); // made once: that takes long
const EXACT = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "medium" });

export function clock(moment: string): string {
  return CLOCK.format(new Date(moment));
}

export function exact(moment: string): string {
  return EXACT.format(new Date(moment));
}

/** Seconds of "24h", "7d", "90min"; undefined if it is no length of time. */
export function seconds(text: string): number | undefined {
  const found = /^(\d{1,6})\s*(s|m|min|h|d)$/.exec(text.trim());
  if (!found) return undefined;
  const sizes: Record<string, number> = { s: 1, m: 60, min: 60, h: 3_600, d: 86_400 };
  return Number(found[1]) * (sizes[found[2] ?? ""] ?? 0);
}

/** A moment from a form's local date and time; none from an empty field. */
export const dueTime = (local: string): string | null => (local ? new Date(local).toISOString() : null);

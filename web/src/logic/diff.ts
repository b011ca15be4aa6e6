/**
 * What changed between two texts, line by line (Myers' algorithm, with a bound: texts that have
 * nearly nothing in common are shown as one taken away and one put there).
 */
export interface Line {
  kind: "same" | "gone" | "new";
  text: string;
}

const CHANGES_MAX = 800;

export function diff(before: string, after: string): Line[] {
  const a = lines(before);
  const b = lines(after);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const same = (text: string): Line => ({ kind: "same", text });
  return [
    ...a.slice(0, start).map(same),
    ...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...a.slice(a.length - end).map(same),
  ];
}

export function changed(before: string, after: string): boolean {
  return before.trimEnd() !== after.trimEnd();
}

function lines(text: string): string[] {
  return text.trimEnd() === "" ? [] : text.trimEnd().split("\n");
}

function middle(a: string[], b: string[]): Line[] {
  const trace = search(a, b);
  if (!trace) return [...a.map((text): Line => ({ kind: "gone", text })), ...b.map((text): Line => ({ kind: "new", text }))];
  const found: Line[] = [];
  let [x, y] = [a.length, b.length];
  for (let d = trace.length - 1; d >= 0; d--) {
    const reach = trace[d] as Map<number, number>;
    const k = x - y;
    const down = k === -d || (k !== d && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
    const from = down ? k + 1 : k - 1;
    const [px, py] = d === 0 ? [0, 0] : [reach.get(from) ?? 0, (reach.get(from) ?? 0) - from];
    while (x > px && y > py) found.push({ kind: "same", text: a[--x] ?? "" }), y--;
    if (d === 0) break;
    if (down) found.push({ kind: "new", text: b[--y] ?? "" });
    else found.push({ kind: "gone", text: a[--x] ?? "" });
  }
  return found.reverse();
}

/** How far each diagonal reached, before every number of changes; null beyond the bound. */
function search(a: string[], b: string[]): Map<number, number>[] | null {
  const reach = new Map<number, number>([[1, 0]]);
  const trace: Map<number, number>[] = [];
  const most = Math.min(a.length + b.length, CHANGES_MAX);
  for (let d = 0; d <= most; d++) {
    trace.push(new Map(reach));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
      let x = down ? (reach.get(k + 1) ?? 0) : (reach.get(k - 1) ?? 0) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      reach.set(k, x);
      if (x >= a.length && x - k >= b.length) return trace;
    }
  }
  return null;
}

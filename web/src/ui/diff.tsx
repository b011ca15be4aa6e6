/** Two texts, and what changed between them. */
import { useMemo } from "react";
import { diff, type Line } from "../logic/diff";

const SIGNS: Record<Line["kind"], string> = { same: " ", gone: "−", new: "+" };
const NEAR = 3;

export function Diff({ before, after, label }: { before: string; after: string; label: string }) {
  const lines = useMemo(() => folded(diff(before, after)), [before, after]);
  return (
    <div className="diff" role="group" aria-label={label} tabIndex={0}>
      {lines.map((line, n) =>
        line === null ? (
          <div key={n} className="diff-fold">
            ⋯
          </div>
        ) : (
          <div key={n} className={`diff-${line.kind}`}>
            <span aria-label={line.kind === "same" ? undefined : line.kind === "gone" ? "taken away" : "new"}>{SIGNS[line.kind]}</span>
            {line.text || " "}
          </div>
        ),
      )}
    </div>
  );
}

/** Lines far from any change are left out. */
function folded(lines: Line[]): (Line | null)[] {
  const near = new Set<number>();
  lines.forEach((line, n) => {
    if (line.kind !== "same") for (let at = n - NEAR; at <= n + NEAR; at++) near.add(at);
  });
  const found: (Line | null)[] = [];
  lines.forEach((line, n) => {
    if (near.has(n)) found.push(line);
    else if (found.at(-1) !== null) found.push(null);
  });
  return found;
}

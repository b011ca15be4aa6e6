/** A unified diff as it was written: every line with its own sign, no character more or less. */
import { memo } from "react";
import type { PatchLine } from "../logic/patch";

const TAGS = { file: "span", hunk: "span", gone: "del", new: "ins", same: "span", note: "span" } as const;
const SIGNED = new Set<PatchLine["kind"]>(["gone", "new", "same"]); // the sign has a column of its own, also where a line is wrapped

export const Patch = memo(function Patch({ lines }: { lines: PatchLine[] }) {
  return (
    <pre className="patch" role="group" aria-label="Diff">
      {lines.map(({ kind, text }, n) => {
        const Tag = TAGS[kind];
        const sign = SIGNED.has(kind) && /^[-+ ]/.test(text) ? text.charAt(0) : "";
        return (
          <Tag key={n} className={`patch-${kind}`}>
            {sign && <span className="sign">{sign}</span>}
            {text.slice(sign.length)}
          </Tag>
        );
      })}
    </pre>
  );
});

/**
 * What an agent wrote, for a person who decides on it: diffs as diffs, what is indented as it is, the
 * rest as Markdown; and the exact text with a switch.
 */
import { memo, useMemo, useState } from "react";
import { parts, withoutBlankEnd } from "../logic/patch";
import { Markdown } from "./markdown";
import { Patch } from "./patch";

export const AgentText = memo(function AgentText({ text }: { text: string }) {
  const [isRaw, setRaw] = useState(false);
  return (
    <div className="agent-text">
      <button type="button" className="raw" aria-pressed={isRaw} title="The exact text" onClick={() => setRaw(!isRaw)}>
        Raw
      </button>
      {isRaw ? <Exact text={text} /> : <Shown text={text} />}
    </div>
  );
});

export function Exact({ text }: { text: string }) {
  return <pre className="verbatim">{text}</pre>;
}

function Shown({ text }: { text: string }) {
  const found = useMemo(() => parts(text), [text]);
  return found.map((part, n) => {
    if (part.kind === "fence") return null;
    if (part.lines) return <Patch key={n} lines={part.lines} />;
    return part.kind === "verbatim" ? <Exact key={n} text={withoutBlankEnd(part.text)} /> : <Markdown key={n} text={part.text} />;
  });
}

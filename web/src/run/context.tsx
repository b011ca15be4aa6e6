/** What the bead knows: its context, as the agents see it. */
import type { Bead } from "../api/schema";
import { AgentText } from "../ui/agent_text";
import { Empty } from "../ui/atoms";

export function Context({ bead }: { bead: Bead }) {
  const entries = Object.entries(bead.context);
  return (
    <>
      {bead.description && <AgentText text={bead.description} />}
      {entries.length ? (
        <dl className="context">
          {entries.map(([name, value]) => (
            <div key={name}>
              <dt>
                <code>{name}</code>
              </dt>
              <dd>
                <pre tabIndex={0}>{typeof value === "string" ? value : JSON.stringify(value, null, 2)}</pre>
              </dd>
            </div>
          ))}
        </dl>
      ) : (
        <Empty title="The context is empty">What agents hand in as data stands here.</Empty>
      )}
    </>
  );
}

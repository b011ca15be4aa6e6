/** Remembered resolutions: searched, corrected, removed. */
import { useState } from "react";
import { ask, path } from "../api/client";
import { everything, useQuery } from "../api/query";
import type { Page, Remembered } from "../api/schema";
import { useMe } from "../me";
import { setQuery, useRoute } from "../route";
import { Empty, Link, Loaded, Moment, PageHead, Trouble } from "../ui/atoms";
import { useDraft } from "../ui/draft";
import { Markdown } from "../ui/markdown";

const STANDING: Record<string, [string, string]> = {
  kept: ["done", "offered to tickets like it"],
  pending: ["running", "its run still goes"],
  failed: ["stuck", "not offered: its run ended badly"],
  reopened: ["closed", "not offered: its ticket was opened again"],
};

export function Memory() {
  const { query } = useRoute();
  const q = query.get("q") ?? "";
  const list = useQuery<Page<Remembered>>(path("/memory", { q, limit: 100 }), everything);
  return (
    <>
      <PageHead title="Memory" />
      <div className="filters">
        <input type="search" aria-label="Search the memory" placeholder="Search tickets and resolutions" defaultValue={q} onChange={(event) => setQuery("q", event.target.value)} />
      </div>
      <Loaded of={list}>
        {({ items }) =>
          items.length ? (
            <ul className="memories">
              {items.map((one) => (
                <li key={one.id}>
                  <Card memory={one} again={list.again} />
                </li>
              ))}
            </ul>
          ) : q ? (
            <Empty title="Nothing remembered fits" />
          ) : (
            <Empty title="Nothing is remembered yet" command="handrail run helpdesk --title 'VPN drops every hour'">
              The helpdesk keeps every resolution that worked, and offers it to tickets like it:
            </Empty>
          )
        }
      </Loaded>
    </>
  );
}

function Card({ memory, again }: { memory: Remembered; again: () => void }) {
  const me = useMe();
  const [editing, setEditing] = useState(false);
  const [sure, setSure] = useState(false);
  const [draft, setDraft] = useDraft(`memory-${memory.id}`);
  const [error, setError] = useState<Error>();
  const [state, word] = STANDING[memory.status] ?? ["closed", memory.status];
  const address = `/memory/${encodeURIComponent(memory.id)}`;
  const act = (method: string, body?: unknown): void =>
    void ask(method, address, { body })
      .then(() => {
        setDraft("");
        setEditing(false);
        again();
      })
      .catch((problem: Error) => setError(problem));
  return (
    <article className="panel">
      <h2>{memory.title}</h2>
      <p>
        <span className={`state state-${state}`}>{word}</span>
      </p>
      {editing ? (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            act("PATCH", { resolution: draft });
          }}
        >
          <label>
            Resolution
            <textarea rows={4} value={draft} autoFocus onChange={(event) => setDraft(event.target.value)} />
          </label>
          <div className="dialog-buttons">
            <button type="button" onClick={() => setEditing(false)}>
              Cancel
            </button>
            <button type="submit" className="primary" disabled={!draft.trim() || draft === memory.resolution}>
              Save
            </button>
          </div>
        </form>
      ) : (
        <Markdown text={memory.resolution} />
      )}
      <p className="faint small">
        From <Link to={`/runs/${memory.execution_id}`}>its run</Link>, <Moment at={memory.created_at} />; used {memory.times_used} {memory.times_used === 1 ? "time" : "times"}
        {memory.corrected_by && `; corrected by ${memory.corrected_by}`}
      </p>
      {error && <Trouble error={error} />}
      {me.atLeast("operator") && !editing && (
        <p className="buttons-row">
          {memory.status === "kept" && (
            <button
              type="button"
              onClick={() => {
                if (!draft) setDraft(memory.resolution);
                setEditing(true);
              }}
            >
              Correct
            </button>
          )}
          <button type="button" className={sure ? "danger" : ""} onClick={() => (sure ? act("DELETE") : setSure(true))}>
            {sure ? "Really remove" : "Remove"}
          </button>
        </p>
      )}
    </article>
  );
}

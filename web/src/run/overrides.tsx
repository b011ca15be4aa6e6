/** What a person may do to a run, each with a reason and with what will happen. */
import { useState } from "react";
import { post } from "../api/client";
import { again, useQuery } from "../api/query";
import type { DefinitionDocument, DefinitionItem, Page, Run } from "../api/schema";
import { placeTitle } from "../logic/words";
import { useMe } from "../me";
import { go } from "../route";
import { Trouble } from "../ui/atoms";
import { Dialog } from "../ui/dialog";
import { useDraft } from "../ui/draft";
import { Icon } from "../ui/icons";

type Action = "move" | "close" | "pause" | "resume" | "migrate" | "again";

const ACTIONS: Record<Action, { title: string; does: string; when: (run: Run) => boolean }> = {
  pause: { title: "Pause", does: "Nobody is given work of this run until somebody resumes it. What is under way is taken back.", when: (run) => run.status === "running" || run.status === "waiting" },
  resume: { title: "Resume", does: "The run goes on where it stood.", when: (run) => run.status === "paused" },
  move: { title: "Move", does: "The run leaves where it is and goes to the place you choose, with fresh counters.", when: (run) => run.status !== "ended" },
  migrate: { title: "Migrate", does: "The run goes on under another version of its definition.", when: (run) => run.status !== "ended" },
  close: { title: "Close", does: "The run ends here, closed by you. Nothing brings it back; its bead can be run again.", when: (run) => run.status !== "ended" },
  again: { title: "Run again", does: "A new run of the same bead begins.", when: (run) => run.status === "ended" },
};

export function Overrides({ run, document }: { run: Run; document: DefinitionDocument | undefined }) {
  const me = useMe();
  const [open, setOpen] = useState(false);
  const [action, setAction] = useState<Action>();
  const possible = (Object.keys(ACTIONS) as Action[]).filter((one) => ACTIONS[one].when(run));
  if (!me.atLeast("operator")) return null;
  return (
    <div className="who">
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name="more" /> Override
      </button>
      {open && (
        <div className="menu" role="menu">
          {possible.map((one) => (
            <button
              key={one}
              type="button"
              role="menuitem"
              onClick={() => {
                setAction(one);
                setOpen(false);
              }}
            >
              {ACTIONS[one].title}
            </button>
          ))}
        </div>
      )}
      {action && <Override run={run} document={document} action={action} close={() => setAction(undefined)} />}
    </div>
  );
}

function Override({ run, document, action, close }: { run: Run; document: DefinitionDocument | undefined; action: Action; close: () => void }) {
  const [reason, setReason] = useDraft(`override-${run.id}`);
  const [node, setNode] = useState("");
  const [version, setVersion] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  const versions = useQuery<Page<DefinitionItem>>(action === "migrate" ? `/workflows/${encodeURIComponent(run.workflow_id)}/versions` : null);
  const places = (document?.nodes ?? document?.agents ?? []).map((one) => one.id).filter((id) => document?.nodes?.find((one) => one.id === id)?.type !== "start");
  const { title, does } = ACTIONS[action];
  const others = versions.data?.items.filter((one) => one.version !== run.workflow_version) ?? [];
  const ready = action === "again" || (reason.trim() !== "" && (action !== "move" || node) && (action !== "migrate" || version));
  const act = async (): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      if (action === "again") {
        const begun = await post<Run>(`/beads/${run.bead_id}/executions`, node ? { from_node: node } : {});
        go(`/runs/${begun.id}`);
      } else {
        const body = { action, reason, ...(node && { node }), ...(version && { version: Number(version) }) };
        await post<Run>(`/executions/${run.id}/override`, body);
        again(`/executions/${run.id}/`, "/approvals");
      }
      setReason("");
      close();
    } catch (problem) {
      setError(problem as Error);
      setBusy(false);
    }
  };
  return (
    <Dialog title={`${title} this run`} close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void act();
        }}
      >
        <p>{does}</p>
        {(action === "move" || action === "migrate" || action === "again") && (
          <label>
            {action === "move" ? "To" : "To (left out: where it is, or the start)"}
            <select value={node} onChange={(event) => setNode(event.target.value)}>
              <option value="">{action === "move" ? "choose" : "—"}</option>
              {places.map((id) => (
                <option key={id} value={id}>
                  {placeTitle(document, id)}
                </option>
              ))}
            </select>
          </label>
        )}
        {action === "migrate" && (
          <label>
            Version (now {run.workflow_version})
            <select value={version} onChange={(event) => setVersion(event.target.value)}>
              <option value="">{others.length ? "choose" : "there is no other version"}</option>
              {others.map((one) => (
                <option key={one.version} value={one.version}>
                  {one.version}, by {one.created_by}
                </option>
              ))}
            </select>
          </label>
        )}
        {action !== "again" && (
          <label>
            Reason (it is kept on record)
            <textarea rows={3} value={reason} onChange={(event) => setReason(event.target.value)} required autoFocus />
          </label>
        )}
        {error && <Trouble error={error} />}
        <div className="dialog-buttons">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" className={action === "close" ? "danger" : "primary"} disabled={busy || !ready}>
            {title}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** A new bead, and its run. */
import { useState } from "react";
import { post } from "../api/client";
import { useQuery } from "../api/query";
import type { Bead, DefinitionItem, Page } from "../api/schema";
import { dueTime } from "../logic/time";
import { go } from "../route";
import { Trouble } from "../ui/atoms";
import { Dialog } from "../ui/dialog";
import { useDraft } from "../ui/draft";

export function NewRun({ close, workflow = "" }: { close: () => void; workflow?: string }) {
  const definitions = useQuery<Page<DefinitionItem>>("/workflows?limit=200");
  const [title, setTitle] = useDraft("new-run-title");
  const [description, setDescription] = useDraft("new-run-description");
  const [chosen, setChosen] = useState(workflow);
  const [review, setReview] = useState("");
  const [due, setDue] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  const workflowId = chosen || definitions.data?.items[0]?.id || "";
  const submit = async (): Promise<void> => {
    setBusy(true);
    try {
      const bead = await post<Bead>("/beads", { title, description, workflow_id: workflowId, review: review || null, due_at: dueTime(due) });
      setTitle("");
      setDescription("");
      close();
      go(`/runs/${bead.execution_id ?? ""}`);
    } catch (problem) {
      setError(problem as Error);
      setBusy(false);
    }
  };
  return (
    <Dialog title="New run" close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <label>
          What is to be done
          <input value={title} onChange={(event) => setTitle(event.target.value)} required autoFocus maxLength={1000} />
        </label>
        <label>
          More about it
          <textarea rows={4} value={description} onChange={(event) => setDescription(event.target.value)} />
        </label>
        <label>
          Definition
          <select value={workflowId} onChange={(event) => setChosen(event.target.value)}>
            {definitions.data?.items.map((one) => (
              <option key={one.id} value={one.id}>
                {one.name}
              </option>
            ))}
          </select>
        </label>
        <label>
          Review
          <select value={review} onChange={(event) => setReview(event.target.value)}>
            <option value="">as the definition says</option>
            <option value="required">required</option>
            <option value="skip">skip</option>
          </select>
        </label>
        <label>
          Due
          <input type="datetime-local" value={due} onChange={(event) => setDue(event.target.value)} />
        </label>
        {error && <Trouble error={error} />}
        <div className="dialog-buttons">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" className="primary" disabled={busy || !title.trim() || !workflowId}>
            Begin
          </button>
        </div>
      </form>
    </Dialog>
  );
}

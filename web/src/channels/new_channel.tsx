/** A new channel: its name, and how people are heard in it. */
import { useState } from "react";
import { post } from "../api/client";
import { again } from "../api/query";
import type { Channel } from "../api/schema";
import { MODES, ORDERS, type Mode, type Order } from "../logic/channels";
import { go } from "../route";
import { Trouble } from "../ui/atoms";
import { Dialog } from "../ui/dialog";

export function NewChannel({ close }: { close: () => void }) {
  const [id, setId] = useState("");
  const [mode, setMode] = useState<Mode>("inject");
  const [order, setOrder] = useState<Order>("round_robin");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  const make = async (): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      const made = await post<Channel>("/channels", { id: id.trim(), turnConfig: { humanInterruptMode: mode, order } });
      again("/channels?");
      go(`/channels/${encodeURIComponent(made.id)}`);
      close();
    } catch (problem) {
      setError(problem as Error);
      setBusy(false);
    }
  };
  return (
    <Dialog title="New channel" close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void make();
        }}
      >
        <label>
          Name
          <input value={id} maxLength={200} onChange={(event) => setId(event.target.value)} required autoFocus />
        </label>
        <label>
          When a person speaks in a turn
          <select value={mode} onChange={(event) => setMode(event.target.value as Mode)}>
            {(Object.keys(MODES) as Mode[]).map((one) => (
              <option key={one} value={one}>
                {MODES[one].title}
              </option>
            ))}
          </select>
          <small className="faint">{MODES[mode].promise}</small>
        </label>
        <label>
          Who is next
          <select value={order} onChange={(event) => setOrder(event.target.value as Order)}>
            {(Object.keys(ORDERS) as Order[]).map((one) => (
              <option key={one} value={one}>
                {ORDERS[one]}
              </option>
            ))}
          </select>
        </label>
        {error && <Trouble error={error} />}
        <div className="dialog-buttons">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" className="primary" disabled={busy || !id.trim()}>
            Make it
          </button>
        </div>
      </form>
    </Dialog>
  );
}

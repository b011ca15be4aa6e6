/** The field in which a person speaks, what will become of it, and what became of the last. */
import { useRef, useState } from "react";
import { ask, newKey, Unreachable } from "../api/client";
import { again } from "../api/query";
import type { Channel, Posted } from "../api/schema";
import { promiseOf, receiptOf } from "../logic/channels";
import { useMe } from "../me";
import { Trouble } from "../ui/atoms";
import { useDraft } from "../ui/draft";
import { useKeys } from "../ui/keys";
import { base } from "./conversation";

export function Speak({ channel, may }: { channel: Channel; may: boolean }) {
  const me = useMe();
  const [text, setText] = useDraft(`channel-${channel.id}`);
  const [to, setTo] = useState("");
  const [error, setError] = useState<Error>();
  const [told, setTold] = useState("");
  const sending = useRef(false);
  const key = useRef("");
  const field = useRef<HTMLTextAreaElement>(null);
  useKeys({ r: () => field.current?.focus() });
  const mode = channel.turnConfig.humanInterruptMode;
  const holder = channel.active;

  const send = async (): Promise<void> => {
    if (sending.current || !text.trim()) return;
    sending.current = true;
    key.current ||= newKey(); // the same message, if its answer is lost and it is sent again
    setError(undefined);
    try {
      const body = { text, ...(to && { to }) };
      const posted = await ask<Posted>("POST", `${base(channel.id)}/messages`, { body, key: key.current });
      key.current = "";
      setText("");
      setTold(receiptOf(posted, mode, holder));
      again(base(channel.id));
    } catch (problem) {
      if (!(problem instanceof Unreachable)) key.current = "";
      setError(problem as Error);
    } finally {
      sending.current = false;
    }
  };

  if (!may) return <p className="notice">You are {me.role}; to speak here takes an operator.</p>;
  return (
    <form
      className="speak"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      {error && <Trouble error={error} />}
      {told && (
        <p className="receipt" role="status">
          {told}
          <button type="button" className="plain" aria-label="Close" onClick={() => setTold("")}>
            ×
          </button>
        </p>
      )}
      <textarea
        ref={field}
        rows={2}
        aria-label="Say something"
        placeholder="Say something"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          key.current = "";
        }}
        onKeyDown={(event) => {
          if (event.key === "Escape") field.current?.blur();
          if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
          event.preventDefault();
          if (!event.repeat) void send();
        }}
      />
      <p className="hint">{promiseOf(channel)}</p>
      <div className="speak-row">
        <select aria-label="To" value={to} onChange={(event) => setTo(event.target.value)}>
          <option value="">to everybody</option>
          {channel.members.map((one) => (
            <option key={one.agent_id} value={one.agent_id}>
              to {one.agent_id}
            </option>
          ))}
        </select>
        <button type="submit" className="primary" disabled={!text.trim()}>
          Send <kbd>Enter</kbd>
        </button>
      </div>
    </form>
  );
}

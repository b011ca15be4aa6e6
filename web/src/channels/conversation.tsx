/** One channel: what was said, a field to say something, and whose turn it is. */
import { useMemo, useState } from "react";
import { ask, post } from "../api/client";
import { again, put, useQuery, type Concerns } from "../api/query";
import type { Channel } from "../api/schema";
import { useWide } from "../inbox/inbox";
import { standingOf } from "../logic/channels";
import { useMe } from "../me";
import { go } from "../route";
import { Link, Loaded, StateBadge, Trouble } from "../ui/atoms";
import { Icon } from "../ui/icons";
import { useKeys } from "../ui/keys";
import { Log } from "./log";
import { Members } from "./members";
import { Modes } from "./modes";
import { Speak } from "./speak";
import { Turn } from "./turn";

export function Conversation({ id }: { id: string }) {
  const concerns = useMemo<Concerns>(() => (event) => event.stream === `channel:${id}`, [id]);
  const channel = useQuery<Channel>(base(id), concerns);
  return (
    <section className="channel" aria-label="The channel in hand">
      <Loaded of={channel} lines={10}>
        {(found) => <Shown channel={found} concerns={concerns} />}
      </Loaded>
    </section>
  );
}

export const base = (id: string): string => `/channels/${encodeURIComponent(id)}`;

/** Changes the channel; what it answers is shown at once. The error, if there was one. */
export type Act = (body: Record<string, unknown>) => Promise<void>;

function Shown({ channel, concerns }: { channel: Channel; concerns: Concerns }) {
  const me = useMe();
  const wide = useWide();
  const [error, setError] = useState<Error>();
  const [busy, setBusy] = useState(false);
  const may = me.atLeast("operator");
  const [state, word] = standingOf(channel);
  const tried = async (work: () => Promise<void>): Promise<void> => {
    if (busy) return;
    setBusy(true);
    setError(undefined);
    await work().catch((problem: Error) => {
      setError(problem);
      again(base(channel.id));
    });
    setBusy(false);
  };
  const act: Act = (body) => tried(async () => put(base(channel.id), await post<Channel>(`${base(channel.id)}/turn`, body)));
  const configure = (turnConfig: Channel["turnConfig"]): Promise<void> =>
    tried(async () => put(base(channel.id), await ask<Channel>("PUT", base(channel.id), { body: { turnConfig } })));
  const pause = (): void => void act({ action: channel.paused ? "unpause" : "pause" });
  useKeys(may ? { p: pause } : {});
  const more = (
    <>
      <Modes channel={channel} may={may && !busy} configure={configure} />
      <Members channel={channel} may={may} tried={tried} />
      {may && <Remove channel={channel} tried={tried} />}
    </>
  );
  return (
    <>
      <header className="channel-head">
        <Link to="/channels" className="plain button only-narrow" label="All channels">
          <Icon name="back" />
        </Link>
        <h2 className="cut">{channel.id}</h2>
        <StateBadge state={state} word={word} />
        {may && (
          <button type="button" className="right" disabled={busy} onClick={pause} aria-label={channel.paused ? "Unpause" : "Pause"} title={channel.paused ? "Turns are granted again" : "The turn in hand goes on to its end; no other is granted"}>
            <Icon name={channel.paused ? "play" : "pause"} /> <span>{channel.paused ? "Unpause" : "Pause"}</span>
          </button>
        )}
      </header>
      {error && <Trouble error={error} />}
      <div className="channel-body">
        <Turn channel={channel} may={may} busy={busy} act={act} />
        <div className="talk">
          <Log id={channel.id} position={channel.position} concerns={concerns} />
          <Speak channel={channel} may={may} />
        </div>
        {wide ? (
          <div className="channel-more">{more}</div>
        ) : (
          <details className="channel-more fold">
            <summary>How people are heard, and who is here</summary>
            {more}
          </details>
        )}
      </div>
    </>
  );
}

function Remove({ channel, tried }: { channel: Channel; tried: (work: () => Promise<void>) => Promise<void> }) {
  const [sure, setSure] = useState(false);
  const remove = (): void =>
    void tried(async () => {
      await ask("DELETE", base(channel.id));
      again("/channels?");
      go("/channels", { replace: true });
    });
  return (
    <p className="small">
      <button type="button" className={sure ? "danger" : "plain"} onClick={() => (sure ? remove() : setSure(true))} onBlur={() => setSure(false)}>
        {sure ? "Really remove: everybody leaves" : "Remove this channel"}
      </button>
    </p>
  );
}

/** Channels: the list, and the one in hand as a conversation beside its queue. */
import { useEffect, useMemo, useState } from "react";
import { useQuery, type Concerns } from "../api/query";
import type { Channel, Page } from "../api/schema";
import { standingOf } from "../logic/channels";
import { useMe } from "../me";
import { go, useRoute } from "../route";
import { Empty, Link, Loaded, StateBadge } from "../ui/atoms";
import { useKeys } from "../ui/keys";
import { base, Conversation } from "./conversation";
import { NewChannel } from "./new_channel";

const LIST = "/channels?limit=200";
const HOW = `# reviewers.py
import handrail
worker = handrail.Worker()

@worker.channel("reviews")
async def review(turn):
    return f"I have read {len(turn.messages)} messages"`;

export const place = (id: string): string => `/channels/${encodeURIComponent(id)}`;

export function Channels() {
  const { item } = useRoute();
  const me = useMe();
  const others = useMemo<Concerns>(() => ({ stream }) => (stream?.startsWith("channel:") ?? false) && stream !== `channel:${item}`, [item]);
  const list = useQuery<Page<Channel>>(LIST, others);
  const inHand = useQuery<Channel>(item ? base(item) : null); // followed below, by the conversation
  const { again } = list;
  useEffect(() => {
    if (inHand.error) again(); // it may be there no more
  }, [inHand.error, again]);
  const [making, setMaking] = useState(false);
  const items = (list.data?.items ?? []).map((one) => (one.id === item ? (inHand.data ?? one) : one));
  const at = items.findIndex((one) => one.id === item);
  const move = (step: number): void => {
    const to = items[Math.min(items.length - 1, Math.max(0, at + step))];
    if (to) go(place(to.id), { replace: at >= 0 });
  };
  useKeys({ j: () => move(1), k: () => move(-1) }, { mayRepeat: true });
  return (
    <div className={item ? "channels has-item" : "channels"}>
      <section className="inbox-list" aria-label="All channels">
        <div className="list-head">
          <h1>
            Channels <span className="faint">{items.length || ""}</span>
          </h1>
          {me.atLeast("operator") && (
            <button type="button" aria-label="New channel" onClick={() => setMaking(true)}>
              New
            </button>
          )}
        </div>
        <Loaded of={list} lines={8}>
          {({ next_cursor }) =>
            items.length ? (
              <>
                <ul>
                  {items.map((one) => (
                    <li key={one.id}>
                      <Link to={place(one.id)} className={one.id === item ? "card chosen" : "card"}>
                        <Card channel={one} />
                      </Link>
                    </li>
                  ))}
                </ul>
                {next_cursor && <p className="faint small">These are the first {items.length}, by name.</p>}
              </>
            ) : (
              <Empty title="No channels yet" command={HOW}>
                In a channel agents take turns, and people join in. Make one, then let agents in that have a function for it:
              </Empty>
            )
          }
        </Loaded>
      </section>
      {item ? <Conversation key={item} id={item} /> : items.length > 0 && <Choose />}
      {making && <NewChannel close={() => setMaking(false)} />}
    </div>
  );
}

function Card({ channel }: { channel: Channel }) {
  const [state, word] = standingOf(channel);
  const who = channel.turn?.agent_id;
  return (
    <>
      <span className="card-line">
        <strong className="cut">{channel.id}</strong>
        <StateBadge state={state} word={word} />
      </span>
      <span className="faint cut">
        {who ? `${who} · ` : ""}
        {channel.members.length} {channel.members.length === 1 ? "agent" : "agents"} · {channel.messages} {channel.messages === 1 ? "message" : "messages"}
      </span>
    </>
  );
}

function Choose() {
  return (
    <section className="channel only-wide">
      <Empty title="Choose a channel">With j and k you go through them.</Empty>
    </section>
  );
}

/** A slider through the history: the graph stands as it stood after each event. */
import { useEffect, useState } from "react";
import { get, path } from "../api/client";
import type { HistoryEvent, Page, Run } from "../api/schema";
import { told } from "../logic/replay";
import { useNow } from "../ui/atoms";
import { Icon } from "../ui/icons";

const PAGE = 500;
const PAGES_MAX = 100;

/** Every event of the run, once somebody wants them. */
export function useStory(run: Run, wanted: boolean): HistoryEvent[] | undefined {
  const [held, setHeld] = useState<{ run: string; events: HistoryEvent[] }>();
  useEffect(() => {
    if (!wanted) return undefined;
    let gone = false;
    void (async () => {
      const events: HistoryEvent[] = [];
      let cursor: string | null = "";
      for (let n = 0; n < PAGES_MAX && cursor !== null && !gone; n++) {
        const page: Page<HistoryEvent> = await get(path(`/beads/${run.bead_id}/history`, { limit: PAGE, cursor }));
        events.push(...page.items.filter((one) => one.execution_id === run.id));
        cursor = page.next_cursor;
      }
      if (!gone) setHeld({ run: run.id, events });
    })().catch(() => undefined); // the slider stays away; a new look tries again
    return () => {
      gone = true;
    };
  }, [wanted, run.id, run.bead_id, run.updated_at]);
  return held?.run === run.id ? held.events : undefined;
}

interface Props {
  run: Run;
  story: HistoryEvent[] | undefined;
  at: number | undefined;
  move: (to: number | undefined) => void;
}

export function Replay({ run, story, at, move }: Props) {
  const [plays, setPlays] = useState(false);
  const most = story?.length ?? 0;
  const now = useNow();
  useEffect(() => {
    if (!plays || at === undefined || !most) return;
    if (at >= most) setPlays(false);
    else move(at + 1);
    // one event a second, by the page's own clock
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [now]);
  if (at === undefined) {
    return (
      <div className="replay">
        <button type="button" className="plain" onClick={() => move(0)}>
          <Icon name="play" /> Replay
        </button>
      </div>
    );
  }
  const event = story?.[Math.max(0, Math.min(at, most) - 1)];
  return (
    <div className="replay">
      <button type="button" className="plain" aria-label={plays ? "Pause the replay" : "Play"} onClick={() => setPlays(!plays)}>
        <Icon name={plays ? "pause" : "play"} />
      </button>
      <input type="range" aria-label={`Replay of run ${run.id}`} min={0} max={most} value={Math.min(at, most)} onChange={(change) => move(Number(change.target.value))} />
      <span className="replay-told cut">
        {Math.min(at, most)} of {most}
        {at > 0 && event ? `: ${event.type.replaceAll("_", " ")} ${told(event)}` : ""}
      </span>
      <button
        type="button"
        className="plain"
        onClick={() => {
          setPlays(false);
          move(undefined);
        }}
      >
        Now
      </button>
    </div>
  );
}

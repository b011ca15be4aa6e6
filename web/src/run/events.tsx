/** Every event of the run as it is recorded: a filter, and the whole of it as JSON. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef, useState } from "react";
import type { Run } from "../api/schema";
import { exact } from "../logic/time";
import { told } from "../logic/replay";
import { Skeleton } from "../ui/atoms";
import { useStory } from "./replay";

export function Events({ run }: { run: Run }) {
  const story = useStory(run, true);
  const [text, setText] = useState("");
  const [open, setOpen] = useState<number>();
  const scroller = useRef<HTMLDivElement>(null);
  const shown = useMemo(() => {
    const wanted = text.trim().toLowerCase();
    return (story ?? []).filter((one) => !wanted || `${one.type} ${one.actor} ${JSON.stringify(one)}`.toLowerCase().includes(wanted));
  }, [story, text]);
  const rows = useVirtualizer({ count: shown.length, getScrollElement: () => scroller.current, estimateSize: () => 36, overscan: 12 });
  if (!story) return <Skeleton />;
  return (
    <div className="events">
      <input type="search" aria-label="Filter events" placeholder="Filter: handed_off, planner, …" value={text} onChange={(event) => setText(event.target.value)} />
      <p className="faint">
        {shown.length} of {story.length} events
      </p>
      <div className="events-list" ref={scroller} tabIndex={0} role="group" aria-label="Events">
        <ol style={{ height: rows.getTotalSize() }}>
          {rows.getVirtualItems().map((row) => {
            const event = shown[row.index];
            if (!event) return null;
            return (
              <li key={event.seq} data-index={row.index} ref={rows.measureElement} style={{ transform: `translateY(${row.start}px)` }}>
                <button type="button" className="event-row" aria-expanded={open === event.seq} onClick={() => setOpen(open === event.seq ? undefined : event.seq)}>
                  <span className="faint">{event.seq}</span>
                  <code>{event.type}</code>
                  <span className="cut">{told(event)}</span>
                  <span className="faint right" title={exact(event.at)}>
                    {event.actor}
                  </span>
                </button>
                {open === event.seq && <pre tabIndex={0}>{JSON.stringify(event, null, 2)}</pre>}
              </li>
            );
          })}
        </ol>
      </div>
    </div>
  );
}

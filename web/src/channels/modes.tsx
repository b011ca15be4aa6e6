/** What becomes of a person's message during a turn: the four modes, and which of them holds here. */
import type { Channel } from "../api/schema";
import { MODES, ORDERS, type Mode } from "../logic/channels";
import { duration } from "../logic/time";

interface Props {
  channel: Channel;
  may: boolean;
  configure: (config: Channel["turnConfig"]) => Promise<void>;
}

export function Modes({ channel, may, configure }: Props) {
  const config = channel.turnConfig;
  return (
    <section className="panel">
      <fieldset className="modes" disabled={!may}>
        <legend>When a person speaks</legend>
        {(Object.keys(MODES) as Mode[]).map((mode) => (
          <label key={mode}>
            <input type="radio" name="mode" checked={config.humanInterruptMode === mode} onChange={() => void configure({ ...config, humanInterruptMode: mode })} />
            <span>
              <strong>{MODES[mode].title}</strong>
              <small>{MODES[mode].promise}</small>
            </span>
          </label>
        ))}
      </fieldset>
      <p className="faint small">
        Turns: {ORDERS[config.order]}, {duration(config.defaultTimeoutSeconds)} each; a pause lasts {duration(config.waitTimeoutSeconds)} at most; after {config.maxAgentTurns} turns without a person the channel rests.
      </p>
    </section>
  );
}

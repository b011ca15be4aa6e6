/** Small parts that every view is made of: links, states, moments, ids, and what stands for nothing. */
import { useEffect, useState, useSyncExternalStore, type ReactNode } from "react";
import { Problem, Unreachable } from "../api/client";
import { exact, relative } from "../logic/time";
import { short, STATE_WORDS, type State } from "../logic/words";
import { go } from "../route";
import { Icon, type IconName } from "./icons";

export function Link({ to, children, className, label }: { to: string; children: ReactNode; className?: string; label?: string }) {
  return (
    <a
      href={to}
      className={className}
      aria-label={label}
      onClick={(event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
        event.preventDefault();
        go(to);
      }}
    >
      {children}
    </a>
  );
}

const STATE_ICONS: Record<State, IconName> = {
  running: "running",
  waiting: "diamond",
  paused: "pause",
  done: "check",
  partial: "half",
  stuck: "cross",
  constraint: "barred",
  closed: "square",
};

export function StateBadge({ state, word }: { state: State; word?: string }) {
  return (
    <span className={`state state-${state}`}>
      <Icon name={STATE_ICONS[state]} />
      {word ?? STATE_WORDS[state]}
    </span>
  );
}

const ticks = new Set<() => void>();
let now = Date.now();
setInterval(() => {
  now = Date.now();
  ticks.forEach((one) => one());
}, 1000);

const ticking = (tick: () => void): (() => void) => (ticks.add(tick), () => ticks.delete(tick));

/** The time, to the second, for whatever tells how long something takes. */
export function useNow(): number {
  return useSyncExternalStore(ticking, () => now);
}

/** How long ago; drawn again when the words change. */
export function Moment({ at }: { at: string | null | undefined }) {
  const told = useSyncExternalStore(ticking, () => (at ? relative(at, now) : ""));
  if (!at) return <span className="faint">–</span>;
  return (
    <time dateTime={at} title={exact(at)}>
      {told}
    </time>
  );
}

/** An id, short; a click copies the whole. */
export function Id({ id }: { id: string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return undefined;
    const timer = setTimeout(() => setCopied(false), 1500);
    return () => clearTimeout(timer);
  }, [copied]);
  return (
    <button
      type="button"
      className="id"
      title={`${id} (click copies it)`}
      onClick={() => void navigator.clipboard?.writeText(id).then(() => setCopied(true))}
    >
      {copied ? "copied" : short(id)}
    </button>
  );
}

/** Nothing is there yet, and how to change that. */
export function Empty({ title, children, command }: { title: string; children?: ReactNode; command?: string }) {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {command && <Command text={command} />}
    </div>
  );
}

export function Command({ text }: { text: string }) {
  return (
    <pre className="command" tabIndex={0}>
      <code>{text}</code>
    </pre>
  );
}

/** Something went wrong, and what to do. */
export function Trouble({ error, again }: { error: Error; again?: () => void }) {
  const away = error instanceof Unreachable;
  const status = error instanceof Problem ? error.status : 0;
  return (
    <div className="trouble" role="alert">
      <strong>{away ? "The server does not answer." : status === 404 ? "This is not here." : "That did not work."}</strong>
      <p>{away ? "It is tried again by itself; what you have typed stays." : error.message}</p>
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Skeleton({ lines = 6 }: { lines?: number }) {
  return (
    <div className="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, n) => (
        <span key={n} />
      ))}
    </div>
  );
}

/** What was asked for: its data, or what stands in its place. */
export function Loaded<T>({ of, lines, children }: { of: { data: T | undefined; error: Error | undefined; again: () => void }; lines?: number; children: (data: T) => ReactNode }) {
  if (of.data === undefined) return of.error ? <Trouble error={of.error} again={of.again} /> : <Skeleton lines={lines} />;
  return (
    <>
      {of.error && !(of.error instanceof Unreachable) && <Trouble error={of.error} again={of.again} />}
      {children(of.data)}
    </>
  );
}

export function Bar({ used, limit, label }: { used: number; limit: number; label: string }) {
  const share = limit > 0 ? Math.min(1, used / limit) : 0;
  const level = share >= 1 ? "full" : share >= 0.75 ? "near" : "calm";
  return (
    <span className={`bar bar-${level}`} role="img" aria-label={label} title={label}>
      <span style={{ width: `${Math.max(share * 100, used > 0 ? 2 : 0)}%` }} />
    </span>
  );
}

export function Tabs<T extends string>({ tabs, now: chosen, choose }: { tabs: [T, string][]; now: T; choose: (tab: T) => void }) {
  return (
    <div className="tabs" role="tablist">
      {tabs.map(([tab, title], n) => (
        <button
          key={tab}
          type="button"
          role="tab"
          aria-selected={tab === chosen}
          tabIndex={tab === chosen ? 0 : -1}
          onClick={() => choose(tab)}
          onKeyDown={(event) => {
            const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
            const to = step && tabs[(n + step + tabs.length) % tabs.length];
            if (!to) return;
            choose(to[0]);
            (event.currentTarget.parentElement?.children[(n + step + tabs.length) % tabs.length] as HTMLElement).focus();
          }}
        >
          {title}
        </button>
      ))}
    </div>
  );
}

export function PageHead({ title, children }: { title: ReactNode; children?: ReactNode }) {
  return (
    <header className="page-head">
      <h1>{title}</h1>
      <div className="page-tools">{children}</div>
    </header>
  );
}

/** What stands around every view: the rail, the search, the connection, the theme, and who I am. */
import { lazy, Suspense, useEffect, useRef, useState, type ComponentType } from "react";
import { post } from "./api/client";
import { useConnection } from "./api/live";
import { asking, OPEN } from "./api/questions";
import { useQuery } from "./api/query";
import type { Approval, Page } from "./api/schema";
import { Inbox } from "./inbox/inbox";
import { clock } from "./logic/time";
import { useMe } from "./me";
import { go, useRoute } from "./route";
import { Runs } from "./runs/runs";
import { useTheme } from "./theme";
import { Link, Skeleton } from "./ui/atoms";
import { Dialog } from "./ui/dialog";
import { Icon, type IconName } from "./ui/icons";
import { useKeys } from "./ui/keys";

const PLACES: [string, string, IconName][] = [
  ["inbox", "Inbox", "inbox"],
  ["runs", "Runs", "runs"],
  ["definitions", "Definitions", "definitions"],
  ["channels", "Channels", "channels"],
  ["agents", "Agents", "agents"],
  ["figures", "Metrics", "figures"],
  ["memory", "Memory", "memory"],
  ["audit", "Audit", "audit"],
];

const VIEWS: Record<string, ComponentType> = {
  inbox: Inbox,
  runs: Runs,
  run: lazy(() => import("./run/run").then((found) => ({ default: found.RunView }))),
  definitions: lazy(() => import("./definitions/definitions").then((found) => ({ default: found.Definitions }))),
  channels: lazy(() => import("./channels/channels").then((found) => ({ default: found.Channels }))),
  agents: lazy(() => import("./views/agents").then((found) => ({ default: found.Agents }))),
  figures: lazy(() => import("./views/figures").then((found) => ({ default: found.FiguresView }))),
  memory: lazy(() => import("./views/memory").then((found) => ({ default: found.Memory }))),
  audit: lazy(() => import("./views/audit").then((found) => ({ default: found.Audit }))),
};

export function Frame() {
  const { view, item } = useRoute();
  useEffect(() => {
    if (!view) go("/inbox", { replace: true });
  }, [view]);
  const open = useQuery<Page<Approval>>(OPEN, asking);
  const waiting = open.data?.items.length ?? 0;
  const shown = view === "runs" && item ? "run" : view || "inbox";
  const View = VIEWS[shown];
  const title = PLACES.find(([name]) => name === view)?.[1] ?? "Inbox";
  useEffect(() => {
    document.title = waiting ? `(${waiting}) ${title} · Handrail` : `${title} · Handrail`;
  }, [title, waiting]);
  return (
    <div className="frame">
      <a className="skip" href="#main">
        To the content
      </a>
      <Rail view={view || "inbox"} waiting={waiting} />
      <Top title={title} />
      <main id="main" tabIndex={0} className={`main main-${shown}`}>
        <Suspense fallback={<Skeleton lines={8} />}>{View ? <View /> : <Lost />}</Suspense>
      </main>
    </div>
  );
}

function Lost() {
  return (
    <div className="empty">
      <h2>There is nothing here</h2>
      <p>
        <Link to="/inbox">To the inbox</Link>
      </p>
    </div>
  );
}

function Rail({ view, waiting }: { view: string; waiting: number }) {
  return (
    <nav className="rail" aria-label="Places">
      <Link to="/inbox" className="brand" label="Handrail: to the inbox">
        <img src="/assets/handrail.svg" alt="" width="24" height="24" />
        <span>Handrail</span>
      </Link>
      <ul>
        {PLACES.map(([name, title, icon]) => (
          <li key={name}>
            <a
              href={`/${name}`}
              aria-current={name === view ? "page" : undefined}
              onClick={(event) => {
                if (event.metaKey || event.ctrlKey || event.shiftKey) return;
                event.preventDefault();
                go(`/${name}`);
              }}
            >
              <Icon name={icon} />
              <span>{title}</span>
              {name === "inbox" && waiting > 0 && (
                <b className="count" aria-label={`${waiting} wait`}>
                  {waiting}
                </b>
              )}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function Top({ title }: { title: string }) {
  const { query, view } = useRoute();
  const [text, setText] = useState("");
  const [helps, setHelps] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const asked = view === "runs" ? (query.get("q") ?? "") : "";
  useEffect(() => setText(asked), [asked]);
  useKeys({ "/": () => field.current?.focus(), "?": () => setHelps(true) });
  return (
    <header className="top">
      <span className="place" aria-hidden="true">
        {title}
      </span>
      <form
        className="search"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          go(text ? `/runs?q=${encodeURIComponent(text)}` : "/runs");
        }}
      >
        <Icon name="search" />
        <input
          ref={field}
          type="search"
          aria-label="Search runs"
          placeholder="Search runs: status:waiting printer"
          value={text}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => event.key === "Escape" && field.current?.blur()}
        />
        <kbd aria-hidden="true">/</kbd>
      </form>
      <ConnectionState />
      <ThemeButton />
      <Who />
      {helps && <Help close={() => setHelps(false)} />}
    </header>
  );
}

function ConnectionState() {
  const connection = useConnection();
  const words: Record<string, string> = { connecting: "connecting", live: "live", reconnecting: "reconnecting…", "signed out": "signed out: open a new sign-in link" };
  const told = connection.kind === "offline" ? `offline since ${clock(new Date(connection.since).toISOString())}` : words[connection.kind];
  return (
    <span className={`connection connection-${connection.kind.replace(" ", "-")}`} role="status">
      {told}
    </span>
  );
}

function ThemeButton() {
  const [theme, turn] = useTheme();
  const icons: Record<string, IconName> = { system: "system", light: "sun", dark: "moon" };
  return (
    <button type="button" className="plain" onClick={turn} aria-label={`Theme: ${theme}`} title={`Theme: ${theme}`}>
      <Icon name={icons[theme] ?? "system"} />
    </button>
  );
}

function Who() {
  const me = useMe();
  const [open, setOpen] = useState(false);
  return (
    <div className="who">
      <button type="button" className="plain" aria-expanded={open} aria-label={`Signed in as ${me.name}`} onClick={() => setOpen(!open)}>
        <Icon name="person" />
        <span>{me.name}</span>
      </button>
      {open && (
        <div className="menu" role="menu">
          <p>
            {me.name}, {me.role}
          </p>
          <button type="button" role="menuitem" onClick={() => void post("/sign-out", {}).then(() => location.assign("/"))}>
            Sign out
          </button>
        </div>
      )}
    </div>
  );
}

const KEYS: [string, string][] = [
  ["/", "search"],
  ["j, k", "next and previous, in the inbox and among channels"],
  ["a", "approve"],
  ["r", "write an answer, or say something"],
  ["Enter", "send what is written"],
  ["Ctrl Enter", "retry with what is written"],
  ["x, then x", "reject"],
  ["p", "pause a channel, or go on"],
  ["?", "this"],
];

function Help({ close }: { close: () => void }) {
  return (
    <Dialog title="Keys" close={close}>
      <dl className="keys">
        {KEYS.map(([key, does]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <div className="dialog-buttons">
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

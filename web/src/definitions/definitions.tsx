/** Definitions: drawn, with what a run can cost at most, their versions, and an editor. */
import { lazy, Suspense, useState } from "react";
import { path } from "../api/client";
import { useQuery } from "../api/query";
import type { DefinitionDocument, DefinitionItem, DefinitionView, Page } from "../api/schema";
import { duration } from "../logic/time";
import { certificate } from "../logic/words";
import { useMe } from "../me";
import { go, setQuery, useRoute } from "../route";
import { NewRun } from "../runs/new_run";
import { Empty, Link, Loaded, Moment, PageHead, Skeleton, Tabs } from "../ui/atoms";
import { Diff } from "../ui/diff";

const GraphView = lazy(() => import("../graph/graph"));
const Editor = lazy(() => import("./editor").then((found) => ({ default: found.Editor })));
type Tab = "graph" | "versions" | "edit";

export function Definitions() {
  const { item } = useRoute();
  const list = useQuery<Page<DefinitionItem>>("/workflows?limit=200");
  const me = useMe();
  const isNew = item === "new";
  return (
    <>
      <PageHead title={item ? <Crumbs item={isNew ? "New" : item} /> : "Definitions"}>
        {!isNew && me.atLeast("operator") && (
          <button type="button" onClick={() => go("/definitions/new")}>
            New definition
          </button>
        )}
      </PageHead>
      {isNew ? (
        <Suspense fallback={<Skeleton />}>
          <Editor document={STARTER} saved={(id) => go(`/definitions/${encodeURIComponent(id)}`)} />
        </Suspense>
      ) : item ? (
        <One id={item} />
      ) : (
        <Loaded of={list}>{(found) => (found.items.length ? <Cards items={found.items} /> : <Empty title="No definitions yet" command="handrail serve --builtin-agents" />)}</Loaded>
      )}
    </>
  );
}

function Crumbs({ item }: { item: string }) {
  return (
    <>
      <Link to="/definitions">Definitions</Link> / {item}
    </>
  );
}

function Cards({ items }: { items: DefinitionItem[] }) {
  return (
    <ul className="cards">
      {items.map((one) => (
        <li key={one.id}>
          <Link to={`/definitions/${encodeURIComponent(one.id)}`} className="panel card">
            <strong>{one.name}</strong>
            <span className="faint">
              {one.kind}, version {one.version}
            </span>
            <span className="faint">
              by {one.created_by}, <Moment at={one.created_at} />
            </span>
          </Link>
        </li>
      ))}
    </ul>
  );
}

function One({ id }: { id: string }) {
  const { query } = useRoute();
  const tab = (query.get("tab") as Tab | null) ?? "graph";
  const view = useQuery<DefinitionView>(`/workflows/${encodeURIComponent(id)}`);
  const [running, setRunning] = useState(false);
  const me = useMe();
  return (
    <Loaded of={view}>
      {(found) => {
        const document = found.definition as DefinitionDocument;
        return (
          <div className="definition">
            <p className="definition-facts">
              {document.description && <span>{document.description}</span>}
              <span className="faint">
                {found.kind}, version {found.version}, by {found.created_by} <Moment at={found.created_at} />
              </span>
            </p>
            <section className="panel certificate">
              <h2>Certificate</h2>
              {found.bound ? (
                <>
                  <p className="big">{certificate(found.bound)}</p>
                  <p className="faint">
                    Waiting for agents at most {duration(found.bound.time.queue)}, for people {duration(found.bound.time.people)}
                    {found.bound.asks > 0 && `; agents may ask ${found.bound.asks} times`}.{" "}
                    {Object.values(found.bound.tight).every(Boolean) ? "Every figure is exact." : "Some figures are upper bounds."}
                  </p>
                </>
              ) : (
                <p>None: it has errors.</p>
              )}
              {found.warnings.map((one) => (
                <p key={one.code + one.path} className="warning">
                  ◆ {one.message} {one.hint && <span className="faint">{one.hint}</span>}
                </p>
              ))}
              {me.atLeast("operator") && (
                <button type="button" className="primary" onClick={() => setRunning(true)}>
                  Run it
                </button>
              )}
            </section>
            <Tabs
              tabs={[
                ["graph", "Graph"],
                ["versions", "Versions"],
                ["edit", "Edit"],
              ]}
              now={tab}
              choose={(to) => setQuery("tab", to === "graph" ? "" : to)}
            />
            <div className="panel" role="tabpanel" aria-label={tab}>
              <Suspense fallback={<Skeleton />}>
                {tab === "graph" && <GraphView document={document} />}
                {tab === "versions" && <Versions id={found.id} />}
                {tab === "edit" && <Editor key={found.version} id={found.id} document={document} saved={view.again} />}
              </Suspense>
            </div>
            {running && <NewRun close={() => setRunning(false)} workflow={found.id} />}
          </div>
        );
      }}
    </Loaded>
  );
}

function Versions({ id }: { id: string }) {
  const versions = useQuery<Page<DefinitionItem>>(`/workflows/${encodeURIComponent(id)}/versions`);
  const [chosen, setChosen] = useState<number>();
  return (
    <Loaded of={versions}>
      {({ items }) => {
        const newest = items[0]?.version ?? 1;
        const at = chosen ?? newest;
        return (
          <div className="versions">
            <ul role="list">
              {items.map((one) => (
                <li key={one.version}>
                  <button type="button" aria-pressed={one.version === at} onClick={() => setChosen(one.version)}>
                    Version {one.version} <span className="faint">{one.created_by}</span>{" "}
                    <span className="faint">
                      <Moment at={one.created_at} />
                    </span>
                  </button>
                </li>
              ))}
            </ul>
            {at > 1 ? <Compare id={id} before={at - 1} after={at} /> : <p className="faint">The first version: nothing before it to compare with.</p>}
          </div>
        );
      }}
    </Loaded>
  );
}

function Compare({ id, before, after }: { id: string; before: number; after: number }) {
  const base = `/workflows/${encodeURIComponent(id)}`;
  const old = useQuery<DefinitionView>(path(base, { version: before }));
  const now = useQuery<DefinitionView>(path(base, { version: after }));
  if (!old.data || !now.data) return <Skeleton />;
  const text = (one: DefinitionView): string => JSON.stringify(one.definition, null, 2);
  return <Diff before={text(old.data)} after={text(now.data)} label={`Version ${before} to ${after}`} />;
}

const STARTER: DefinitionDocument & { id: string; roles: string[] } = {
  id: "my-workflow",
  name: "my-workflow",
  kind: "workflow",
  roles: ["worker"],
  description: "A task, and a person looks at it.",
  nodes: [
    { id: "start", type: "start" },
    { id: "work", type: "task", role: "worker", max_attempts: 3 },
    { id: "look", type: "approval", role: "ceo", config: { revise_to: "work" } },
    { id: "end", type: "end" },
  ],
  edges: [
    { from_node_id: "start", to_node_id: "work" },
    { from_node_id: "work", to_node_id: "look" },
    { from_node_id: "look", to_node_id: "end" },
  ],
};

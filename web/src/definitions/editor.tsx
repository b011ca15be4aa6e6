/** A definition as text, JSON or YAML: what is wrong stands at its line while it is typed. */
import { lazy, Suspense, useDeferredValue, useEffect, useRef, useState } from "react";
import { ask, post } from "../api/client";
import { again } from "../api/query";
import type { DefinitionDocument, Place, ReadText, Validated } from "../api/schema";
import { broken, locate } from "../logic/locate";
import { certificate } from "../logic/words";
import { asYaml, locateYaml } from "../logic/yaml";
import { Skeleton, Trouble } from "../ui/atoms";
import { useDraft } from "../ui/draft";

const GraphView = lazy(() => import("../graph/graph"));
const WAIT_MS = 250;
const LINE = 20;

interface Mark {
  line: number;
  message: string;
  hint: string;
  kind: "error" | "warning";
}

interface Found {
  text: string;
  marks: Mark[];
  told: string;
  valid: boolean;
  document?: DefinitionDocument; // the last one that could be read
}

type Form = "JSON" | "YAML";
const formOf = (text: string): Form => (/^\s*[{[]/.test(text) ? "JSON" : "YAML");
const WRITES: Record<Form, (document: unknown) => string> = { JSON: (document) => JSON.stringify(document, null, 2), YAML: asYaml };
const LOCATES: Record<Form, (text: string, path: string) => number> = { JSON: locate, YAML: locateYaml };

export function Editor({ id, document, saved }: { id?: string; document: DefinitionDocument; saved: (id: string) => void }) {
  const original = WRITES.JSON(document);
  const [draft, setDraft] = useDraft(`definition-${id ?? "new"}`);
  const text = draft || original;
  const found = useChecked(text);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  const field = useRef<HTMLTextAreaElement>(null);
  const gutter = useRef<HTMLDivElement>(null);
  const drawn = useDeferredValue(found?.document);
  const lines = text.split("\n");
  const current = found?.text === text ? found : undefined;
  const form = formOf(text);
  const turn = (to: Form): void => {
    if (to !== form && current?.document) setDraft(WRITES[to](current.document));
  };

  const jump = (line: number): void => {
    const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    field.current?.focus();
    field.current?.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
    field.current?.scrollTo({ top: Math.max(0, (line - 6) * LINE) });
  };
  const save = async (): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      const body = current?.document;
      const made = id ? await ask<{ id: string }>("PUT", `/workflows/${encodeURIComponent(id)}`, { body }) : await post<{ id: string }>("/workflows", body);
      setDraft("");
      again("/workflows");
      saved(made.id);
    } catch (problem) {
      setError(problem as Error);
    } finally {
      setBusy(false);
    }
  };

  return (
    <div className="editor">
      <div className="filters editor-forms" role="group" aria-label="Written as">
        {(Object.keys(WRITES) as Form[]).map((one) => (
          <button key={one} type="button" aria-pressed={one === form} disabled={one !== form && !current?.document} onClick={() => turn(one)}>
            {one}
          </button>
        ))}
      </div>
      <div className="editor-text">
        <div className="gutter" ref={gutter} aria-hidden="true">
          {lines.map((_, n) => {
            const mark = found?.marks.find((one) => one.line === n + 1);
            return (
              <span key={n} className={mark ? `gutter-${mark.kind}` : undefined}>
                {n + 1}
              </span>
            );
          })}
        </div>
        <textarea
          ref={field}
          aria-label={`The definition as ${form}`}
          spellCheck={false}
          wrap="off"
          value={text}
          onChange={(event) => setDraft(event.target.value)}
          onScroll={(event) => gutter.current?.scrollTo({ top: event.currentTarget.scrollTop })}
        />
      </div>
      <div className="editor-side">
        <p role="status" className={current ? (current.valid ? "valid" : "invalid") : "faint"}>
          {current?.told ?? "checking…"}
        </p>
        <ul className="marks">
          {found?.marks.map((one, n) => (
            <li key={n}>
              <button type="button" className={`mark-${one.kind}`} onClick={() => jump(one.line)}>
                <strong>Line {one.line}:</strong> {one.message}
                {one.hint && <small>{one.hint}</small>}
              </button>
            </li>
          ))}
        </ul>
        {error && <Trouble error={error} />}
        <div className="dialog-buttons">
          {draft && (
            <button type="button" onClick={() => setDraft("")}>
              Undo all
            </button>
          )}
          <button type="button" className="primary" disabled={busy || !current?.valid || (id !== undefined && text === original)} onClick={() => void save()}>
            {id ? "Save as a new version" : "Save"}
          </button>
        </div>
        {drawn && isDrawable(drawn) && (
          <Suspense fallback={<Skeleton lines={3} />}>
            <GraphView document={drawn} />
          </Suspense>
        )}
      </div>
    </div>
  );
}

/** What the server says of the text, a moment after the last key. */
function useChecked(text: string): Found | undefined {
  const [found, setFound] = useState<Found>();
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(() => {
      check(text, stop.signal)
        .then((now) => setFound((old) => ({ ...now, document: now.document ?? old?.document })))
        .catch(() => undefined); // asked again at the next key
    }, WAIT_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text]);
  return found;
}

async function check(text: string, signal: AbortSignal): Promise<Found> {
  const form = formOf(text);
  const wrong = (line: number, message: string, hint = ""): Found => ({ text, marks: [{ line, message, hint, kind: "error" }], told: `This is not ${form} yet.`, valid: false });
  const bad = form === "JSON" ? broken(text) : null;
  if (bad) return wrong(bad.line, bad.message);
  let document: unknown;
  if (form === "JSON") document = JSON.parse(text);
  else {
    const read = await ask<ReadText>("POST", "/workflows/read", { body: { text }, signal });
    const [error] = read.errors;
    if (error) return wrong(Number(/^line (\d+)/.exec(error.message)?.[1] ?? 1), error.message.replace(/^line \d+, column \d+: /, ""), error.hint);
    document = read.document;
  }
  if (document === null || typeof document !== "object" || Array.isArray(document)) return wrong(1, "a definition is an object: name, kind and the rest");
  return judged(text, await ask<Validated>("POST", "/workflows/validate", { body: document, signal }), document as DefinitionDocument);
}

function judged(text: string, answer: Validated, document: DefinitionDocument): Found {
  const line = LOCATES[formOf(text)];
  const marks = (places: readonly Place[], kind: Mark["kind"]): Mark[] =>
    places.map((one) => ({ line: line(text, one.path), message: one.message, hint: one.hint ?? "", kind }));
  const count = answer.errors.length;
  const told = answer.valid ? `Valid. ${answer.bound ? certificate(answer.bound) : ""}` : `${count} ${count === 1 ? "error" : "errors"}; nothing can be stored yet.`;
  return { text, marks: [...marks(answer.errors, "error"), ...marks(answer.warnings, "warning")], told, valid: answer.valid, document };
}

const isDrawable = (document: DefinitionDocument): boolean => Array.isArray(document.nodes) || Array.isArray(document.agents);

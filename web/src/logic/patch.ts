/**
 * What an agent wrote, divided by how it has to be shown: unified diffs and text whose indentation
 * means something are verbatim, the rest is Markdown. All of the text is in the parts, in order.
 *
 * How long a hunk is, its header says, as git reads it: within that count every line is content,
 * whatever it looks like. Counts that are wrong, as models write them, cost no line its sign.
 */
export interface PatchLine {
  kind: "file" | "hunk" | "gone" | "new" | "same" | "note";
  text: string; // with its end of line
}

export interface Part {
  kind: "prose" | "verbatim" | "diff" | "fence";
  text: string;
  lines?: PatchLine[]; // of a diff
}

const LINES = /[^\n]*\n|[^\n]+$/g;
const HUNK = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/;
const GIT_FILE = /^diff --git \S/;
const HEADER = /^(?:index |(?:old|new|deleted file|new file) mode |(?:copy|rename) (?:from|to) |(?:dis)?similarity index |Binary files |GIT binary patch$)/;
const FENCE = /^( {0,3})(`{3,}|~{3,})(.*)$/;
const LIST = /^ {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)/;
const INDENTED = /^(?: {2}|\t| \t)/;
const DIFF_LANGUAGES = ["diff", "patch", "udiff"];
const BODY: Record<string, PatchLine["kind"]> = { "-": "gone", "+": "new", " ": "same", "\\": "note", "": "same" };

export function parts(text: string): Part[] {
  const lines = text.match(LINES) ?? [];
  const found: Part[] = [];
  let prose = 0; // where the prose began that no part has yet
  let at = 0;
  while (at < lines.length) {
    const taken = fenced(lines, at) ?? bare(lines, at);
    if (!taken) {
      at++;
      continue;
    }
    if (taken.parts.some((one) => one.kind === "diff")) {
      found.push(...blocks(lines.slice(prose, at)), ...taken.parts);
      prose = taken.end;
    }
    at = taken.end;
  }
  return [...found, ...blocks(lines.slice(prose))].filter((one) => one.text);
}

/** The lines of a text that is known to be a diff. */
export function patchLines(text: string): PatchLine[] {
  return scan(text.match(LINES) ?? [], 0, () => false).lines;
}

export function isPatch(text: string): boolean {
  const lines = text.match(LINES) ?? [];
  const first = lines.findIndex((one) => one.trim());
  return first >= 0 && begins(lines, first);
}

/** Without the blank lines after the last one. */
export function withoutBlankEnd(text: string): string {
  const lines = text.match(LINES) ?? [];
  let end = lines.length;
  while (end > 0 && !(lines[end - 1] ?? "").trim()) end--;
  return lines.slice(0, end).join("");
}

interface Taken {
  parts: Part[];
  end: number;
}

function bare(lines: string[], at: number): Taken | undefined {
  if (!begins(lines, at)) return undefined;
  const { lines: found, end } = scan(lines, at);
  return { parts: [{ kind: "diff", text: joined(found), lines: found }], end };
}

/** A fence and what is in it: a diff, or Markdown, whatever it looks like. */
function fenced(lines: string[], at: number): Taken | undefined {
  const [, indent, mark, info] = FENCE.exec(trimmed(lines[at])) ?? [];
  if (indent === undefined || mark === undefined || info === undefined || (mark[0] === "`" && info.includes("`"))) return undefined;
  const language = info.trim().split(/\s/, 1)[0] ?? "";
  const closes = (line: string): boolean => {
    const close = /^ {0,3}(`+|~+)\s*$/.exec(line)?.[1];
    return close !== undefined && close[0] === mark[0] && close.length >= mark.length;
  };
  const first = pastBlank(lines, at + 1);
  if (DIFF_LANGUAGES.includes(language.toLowerCase()) || begins(lines, first, indent.length)) {
    const { lines: found, end } = scan(lines, at + 1, closes, indent.length);
    const fence = (line: string | undefined): Part => ({ kind: "fence", text: line ?? "" });
    return { parts: [fence(lines[at]), { kind: "diff", text: joined(found), lines: found }, fence(lines[end])], end: Math.min(end + 1, lines.length) };
  }
  let end = at + 1;
  while (end < lines.length && !closes(trimmed(lines[end]))) end++;
  return { parts: [{ kind: "prose", text: "" }], end: Math.min(end + 1, lines.length) };
}

/** Whether a diff begins with this line. */
function begins(lines: string[], at: number, indent = 0): boolean {
  const line = trimmed(lines[at], indent);
  return GIT_FILE.test(line) || HUNK.test(line) || (isFilePair(lines, at, indent) && trimmed(lines[at + 2], indent).startsWith("@@"));
}

function isFilePair(lines: string[], at: number, indent: number): boolean {
  return trimmed(lines[at], indent).startsWith("--- ") && trimmed(lines[at + 1], indent).startsWith("+++ ");
}

/** The lines of a diff from here to its end; in a fence to the end of that. */
function scan(lines: string[], from: number, closes?: (line: string) => boolean, indent = 0): { lines: PatchLine[]; end: number } {
  const found: PatchLine[] = [];
  let [gone, fresh] = [0, 0]; // what the hunk still has, by its count
  let inHunk = closes !== undefined; // in a fence also without a header
  let inHeader = false;
  let end = from;
  const take = (kind: PatchLine["kind"]): void => void found.push({ kind, text: lines[end++] ?? "" });
  while (end < lines.length) {
    const line = trimmed(lines[end], indent);
    const body = BODY[line.charAt(0)];
    if ((gone > 0 || fresh > 0) && body) {
      if (body === "gone" || body === "same") gone = Math.max(0, gone - 1);
      if (body === "new" || body === "same") fresh = Math.max(0, fresh - 1);
      take(body);
      continue;
    }
    gone = fresh = 0;
    if (closes?.(line)) break;
    const hunk = HUNK.exec(line);
    if (hunk) [gone, fresh] = [Number(hunk[1] ?? 1), Number(hunk[2] ?? 1)];
    if (hunk || line.startsWith("@@")) {
      [inHunk, inHeader] = [true, false];
      take("hunk");
    } else if (GIT_FILE.test(line)) {
      [inHunk, inHeader] = [false, true];
      take("file");
    } else if (isFilePair(lines, end, indent)) {
      [inHunk, inHeader] = [false, true];
      take("file"), take("file");
    } else if (inHeader && HEADER.test(line)) {
      take("file");
    } else if (inHeader && line.trim() && isBinary(found)) {
      take("note");
    } else if (!line.trim()) {
      const next = pastBlank(lines, end);
      if (!closes && !goesOn(lines, next)) break;
      while (end < next) take("same");
    } else if (inHunk && body && (closes || line !== "-- ")) {
      take(body);
    } else if (closes) {
      take("note");
    } else {
      break;
    }
  }
  return { lines: found, end };
}

const isBinary = (found: PatchLine[]): boolean => {
  const last = found.at(-1);
  return last?.kind === "note" || trimmed(last?.text) === "GIT binary patch";
};

function pastBlank(lines: string[], at: number): number {
  let next = at;
  while (next < lines.length && !(lines[next] ?? "").trim()) next++;
  return next;
}

const goesOn = (lines: string[], next: number): boolean => next < lines.length && (begins(lines, next) || isFilePair(lines, next, 0));

/** Prose by its paragraphs: those with an indentation that is not a list's are kept as they are. */
function blocks(lines: string[]): Part[] {
  const found: Part[] = [];
  let inList = false;
  let at = 0;
  while (at < lines.length) {
    const from = at;
    const end = fenceEnd(lines, at);
    let kind: Part["kind"] = "prose";
    if (end !== undefined) {
      at = end;
      inList = inList && /^\s/.test(lines[from] ?? "");
    } else {
      inList = inList && /^\s/.test(lines[from] ?? ""); // a paragraph of the item before it
      while (at < lines.length && (lines[at] ?? "").trim() && (at === from || fenceEnd(lines, at) === undefined)) {
        const line = lines[at++] ?? "";
        if (LIST.test(line) && (inList || !INDENTED.test(line))) inList = true;
        else if (!inList && INDENTED.test(line)) kind = "verbatim";
      }
    }
    at = pastBlank(lines, at);
    const text = lines.slice(from, at).join("");
    const last = found.at(-1);
    if (last && (last.kind === kind || !last.text.trim())) [last.kind, last.text] = [kind, last.text + text];
    else found.push({ kind, text });
  }
  return found;
}

/** Where the fence ends that begins here. */
function fenceEnd(lines: string[], at: number): number | undefined {
  return fenced(lines, at)?.end;
}

const joined = (lines: PatchLine[]): string => lines.map((one) => one.text).join("");

/** A line without its end, and without the indentation of the fence around it. */
function trimmed(line: string | undefined, indent = 0): string {
  const bare = (line ?? "").replace(/\r?\n$/, "");
  let at = 0;
  while (at < indent && bare[at] === " ") at++;
  return bare.slice(at);
}

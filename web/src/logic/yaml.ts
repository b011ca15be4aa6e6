/** Documents as YAML text: written, and where in such a text a path stands. Read by the server. */
type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

const PLAIN = /^[A-Za-z_][\w ./()-]*$/;
const WORDS = /^(true|false|null|yes|no|on|off|y|n)$/i;

/** The document in block style, two spaces deep. */
export function asYaml(document: unknown): string {
  return `${block(document as Json, 0).replace(/^\n/, "")}\n`;
}

function block(value: Json, depth: number): string {
  const pad = "  ".repeat(depth);
  if (Array.isArray(value) && value.length) return value.map((one) => `\n${pad}- ${inItem(one, depth + 1)}`).join("");
  if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    const entries = Object.entries(value);
    if (entries.length) return entries.map(([name, one]) => `\n${pad}${scalar(name)}:${after(one, depth + 1)}`).join("");
  }
  return scalar(value);
}

/** Behind a dash the first line of what is in it stands on the same line. */
function inItem(value: Json, depth: number): string {
  return block(value, depth).replace(/^\n\s*/, "");
}

function after(value: Json, depth: number): string {
  const text = block(value, depth);
  return text.startsWith("\n") ? text : ` ${text}`;
}

function scalar(value: Json): string {
  if (typeof value === "string" && PLAIN.test(value) && !WORDS.test(value) && !value.endsWith(" ")) return value;
  return JSON.stringify(value);
}

interface Open {
  indent: number;
  list: boolean;
  base: string;
  at: string; // ".key" or "[3]"
}

const KEY = /^("(?:[^"\\]|\\.)*"|'[^']*'|[^\s#:'"{[-][^:]*?|-[^\s:][^:]*?)\s*:(?=\s|$)/;
const FOLDED = /:\s+[|>][-+\d]*\s*$/;

/** The line, from 1, at which a path such as `$.nodes[2].role` stands, or what is nearest around it. */
export function locateYaml(text: string, path: string): number {
  const places = placesOf(text);
  for (let wanted = path; wanted.length > 1; wanted = wanted.replace(/(\.[^.[\]]+|\[\d+\])$/, "")) {
    const line = places.get(wanted);
    if (line !== undefined) return line;
    if (!/(\.[^.[\]]+|\[\d+\])$/.test(wanted)) break;
  }
  return 1;
}

function placesOf(text: string): Map<string, number> {
  const places = new Map<string, number>();
  const open: Open[] = [];
  const top = (): Open | undefined => open.at(-1);
  const here = (): string => (top() ? `${top()?.base}${top()?.at}` : "$");
  let folded = -1; // lines deeper than this belong to a text
  text.split("\n").forEach((line, n) => {
    let indent = line.search(/\S/);
    if (indent < 0 || line.trimStart().startsWith("#") || (folded >= 0 && indent > folded)) return;
    folded = FOLDED.test(line) ? indent : -1;
    let rest = line.trim();
    const mark = (): void => void (places.has(here()) || places.set(here(), n + 1));
    while (/^-(\s|$)/.test(rest)) {
      while ((top()?.indent ?? -1) > indent) open.pop();
      const list = top();
      if (list?.list && list.indent === indent) list.at = `[${Number(list.at.slice(1, -1)) + 1}]`;
      else open.push({ indent, list: true, base: here(), at: "[0]" });
      mark();
      const inner = rest.slice(1).trimStart();
      indent += rest.length - inner.length;
      rest = inner;
    }
    const name = KEY.exec(rest)?.[1];
    if (name === undefined) return;
    while ((top()?.indent ?? -1) > indent || (top()?.list && top()?.indent === indent)) open.pop();
    const at = `.${name.replace(/^(["'])(.*)\1$/, "$2")}`;
    const map = top();
    if (map && map.indent === indent) map.at = at;
    else open.push({ indent, list: false, base: here(), at });
    mark();
  });
  return places;
}

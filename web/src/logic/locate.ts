/** Where in a JSON text a path such as `$.nodes[2].role` stands: the line, from 1. */
export function locate(text: string, path: string): number {
  const wanted = [...path.matchAll(/\.([^.[\]]+)|\[(\d+)\]/g)].map((one) => one[1] ?? Number(one[2]));
  const places = new Map<string, number>();
  walk(text, places);
  for (let length = wanted.length; length >= 0; length--) {
    const found = places.get(key(wanted.slice(0, length))); // the nearest that is there
    if (found !== undefined) return text.slice(0, found).split("\n").length;
  }
  return 1;
}

const key = (path: readonly (string | number)[]): string => JSON.stringify(path);

/** Every value's path with where it begins; a text that breaks off has those before the break. */
function walk(text: string, places: Map<string, number>): void {
  const path: (string | number)[] = [];
  const open: ("{" | "[")[] = [];
  let wantsName = false;
  const begins = (at: number): void => {
    if (!places.has(key(path))) places.set(key(path), at);
  };
  const tokens = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
  for (const { 0: token, index } of text.matchAll(tokens)) {
    if (token === "{" || token === "[") {
      begins(index);
      open.push(token);
      path.push(token === "[" ? 0 : "");
      wantsName = token === "{";
    } else if (token === "}" || token === "]") {
      open.pop();
      path.pop();
      wantsName = false;
    } else if (token === ",") {
      const last = path.pop();
      path.push(open.at(-1) === "[" ? Number(last) + 1 : "");
      wantsName = open.at(-1) === "{";
    } else if (token === ":") {
      wantsName = false;
    } else if (wantsName && token.startsWith('"')) {
      path[path.length - 1] = unquoted(token);
      begins(index);
    } else {
      begins(index);
    }
  }
}

function unquoted(token: string): string {
  try {
    return JSON.parse(token) as string;
  } catch {
    return token;
  }
}

/** The line at which the text stops being JSON, and what is wrong there. */
export function broken(text: string): { line: number; message: string } | null {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    const told = (error as Error).message;
    const at = /position (\d+)/.exec(told);
    const line = at ? text.slice(0, Number(at[1])).split("\n").length : text.split("\n").length;
    return { line, message: told.replace(/^JSON\.parse: |in JSON at position.*$/g, "").trim() };
  }
}

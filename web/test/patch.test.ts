import { expect, test } from "vitest";
import { parts, patchLines, type Part } from "../src/logic/patch";

const PATCH = `diff --git a/pkg/text.py b/pkg/text.py
index 83db48f..bf269f4 100644
--- a/pkg/text.py
+++ b/pkg/text.py
@@ -1,5 +1,6 @@ def load(name):
 def load(name):
-    if template.count("{}") >= len(values):
-\treturn __import__(name)  
+    if template.count("{}") > len(values):
+
+\treturn __import__(name)
 
     return None
\\ No newline at end of file
`;

const kinds = (text: string): string[] => parts(text).map((one) => one.kind);
const whole = (text: string): string => parts(text).map((one) => one.text).join("");
const of = (text: string, kind: Part["kind"]): string => parts(text).filter((one) => one.kind === kind).map((one) => one.text).join("");
const signs = (text: string): string => {
  const letters = { file: "f", hunk: "@", gone: "-", new: "+", same: " ", note: "n" };
  return parts(text).flatMap((one) => one.lines ?? []).map((one) => letters[one.kind]).join("");
};

test("a patch is a diff and nothing else", () => {
  expect(kinds(PATCH)).toEqual(["diff"]);
  expect(signs(PATCH)).toBe("ffff@ --+++  n");
});

test("every character of a diff is in its lines", () => {
  const [diff] = parts(PATCH);
  expect(diff?.lines?.map((one) => one.text).join("")).toBe(PATCH);
});

test("prose before and after a diff stays prose", () => {
  const text = `**Cause**: off by one\nPatch 1:\n\n${PATCH}\nTests are green.\n\n- low risk\n`;
  expect(kinds(text)).toEqual(["prose", "diff", "prose"]);
  expect(of(text, "diff")).toBe(PATCH);
});

test("prose may end right before the diff begins", () => expect(kinds(`The patch:\n${PATCH}`)).toEqual(["prose", "diff"]));

test("a list right behind a complete diff is no part of it when a blank line separates them", () => {
  expect(of("@@ -1 +1 @@\n-a\n+b\n\n- a point\n+ another\n", "diff")).toBe("@@ -1 +1 @@\n-a\n+b\n");
});

test("headers without git, and hunks without headers", () => {
  expect(signs("--- a.py\n+++ b.py\n@@ -1 +1 @@\n-a\n+b\n")).toBe("ff@-+");
  expect(signs("@@ -1 +1 @@\n-a\n+b\n")).toBe("@-+");
});

test("several files are one diff, with blank lines between them", () => {
  expect(kinds(`${PATCH}\n${PATCH}`)).toEqual(["diff"]);
  expect(whole(`${PATCH}\n${PATCH}`)).toBe(`${PATCH}\n${PATCH}`);
});

test("within its count a line that looks like a header is content", () => {
  const text = "--- a.sql\n+++ b.sql\n@@ -1,2 +1,2 @@\n--- drop it\n-x\n+++ keep it\n+y\n";
  expect(signs(text)).toBe("ff@--++");
});

test("a signature behind a mailed patch is no removed line", () => {
  expect(of("@@ -1 +1 @@\n-a\n+b\n-- \n2.39.5\n", "diff")).toBe("@@ -1 +1 @@\n-a\n+b\n");
});

test("counts that are wrong hide no sign", () => {
  expect(signs("--- a\n+++ b\n@@ -1,1 +1,1 @@\n-a\n-b\n+c\n+d\n")).toBe("ff@--++"); // too few
  expect(signs("--- a\n+++ b\n@@ -1,9 +1,9 @@\n-a\n+c\ndiff --git a/x b/x\nnew file mode 100644\n")).toBe("ff@-+ff"); // too many
  expect(signs("--- a\n+++ b\n@@\n-a\n+c\n")).toBe("ff@-+"); // none at all
});

test("in a fence of diff everything is diff, the fence is markup", () => {
  const text = "Do this:\n\n```diff\n-    old\n+    new\n```\n\nand that.\n";
  expect(kinds(text)).toEqual(["prose", "fence", "diff", "fence", "prose"]);
  expect(of(text, "diff")).toBe("-    old\n+    new\n");
  expect(signs(text)).toBe("-+");
});

test("a fence without a language is a diff if a diff is in it, else Markdown", () => {
  expect(kinds("```\n" + PATCH + "```\n")).toEqual(["fence", "diff", "fence"]);
  expect(kinds("```python\ndef f():\n    - 1\n```\n")).toEqual(["prose"]);
});

test("a fence inside of the patch does not end the fence around it", () => {
  const inner = "--- a.md\n+++ b.md\n@@ -1,4 +1,4 @@\n ```sh\n-old\n+new\n ```\n end\n";
  expect(of("```diff\n" + inner + "```\nprose\n", "diff")).toBe(inner);
  expect(of(inner, "diff")).toBe(inner);
});

test("a fence that is never closed ends with the text", () => expect(of("```diff\n-a\n+b", "diff")).toBe("-a\n+b"));

test("renamed, new, deleted and binary files have headers only", () => {
  const text = "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\ndiff --git a/i.png b/i.png\nBinary files a/i.png and b/i.png differ\n";
  expect(signs(text)).toBe("ffffff");
});

test("a traceback and code are kept verbatim, with their blank lines", () => {
  const traceback = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    __import__(name)\nValueError: no\n';
  const code = "def f(x):\n    if x:\n        return 1\n\n    return 2\n";
  expect(kinds(traceback)).toEqual(["verbatim"]);
  expect(kinds(code)).toEqual(["verbatim"]);
  expect(kinds(`It failed:\n\n${traceback}\nSee *below*.\n`)).toEqual(["prose", "verbatim", "prose"]);
  expect(kinds('{\n  "a": 1\n}')).toEqual(["verbatim"]);
  expect(kinds("steps:\n  - name: a\n    run: b\n")).toEqual(["verbatim"]);
});

test("Markdown with its own indentation stays Markdown", () => {
  expect(kinds("Steps:\n- one\n  - nested\n  more\n")).toEqual(["prose"]);
  expect(kinds("1. one\n\n   its second paragraph\n\n2. two\n")).toEqual(["prose"]);
  expect(kinds("# Title\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> said\n\n```\n    code\n```\n")).toEqual(["prose"]);
  expect(kinds("a rule\n\n---\n\n+ a list\n- another\n")).toEqual(["prose"]);
});

test("nothing is nothing", () => expect(parts("")).toEqual([]));

test("whatever the text, all of it is in its parts, in order", () => {
  let seed = 11;
  const next = (): number => (seed = (seed * 48271) % 2147483647);
  const pieces = [...PATCH.split(/(?<=\n)/), "```diff\n", "```\n", "~~~~\n", "\n", "\r\n", "  \n", "- point\n", "    code\n", "prose", "prose\n", "@@\n", "@@ -1,3 +1,2 @@\n", "+++ b\n", "--- a\n", "-- \n", "+\r\n", "\t+x\n", "   ```\n"];
  for (let round = 0; round < 3000; round++) {
    const text = Array.from({ length: next() % 14 }, () => pieces[next() % pieces.length]).join("");
    expect(whole(text)).toBe(text);
    for (const one of parts(text)) if (one.lines) expect(one.lines.map((line) => line.text).join("")).toBe(one.text);
  }
});

test("a long patch is read in one pass", () => {
  const many = Array.from({ length: 60_000 }, (_, n) => `+line ${n}\n`).join("");
  const text = `--- a\n+++ b\n@@ -0,0 +1,60000 @@\n${many}`;
  const start = performance.now();
  expect(signs(text)).toHaveLength(60_003);
  expect(parts("\n".repeat(60_000) + "x")).toHaveLength(1);
  expect(parts(`--- a\n+++ b\n@@\n${"\n".repeat(60_000)}`).length).toBeGreaterThan(0);
  expect(performance.now() - start).toBeLessThan(2000);
});

test("lines of what is known to be a diff", () => expect(patchLines("-a\n+b").map((one) => one.kind)).toEqual(["gone", "new"]));

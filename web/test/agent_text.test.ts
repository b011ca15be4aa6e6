import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { expect, test } from "vitest";
import { AgentText, Exact } from "../src/ui/agent_text";
import { Markdown } from "../src/ui/markdown";

const shown = (text: string): string => renderToStaticMarkup(createElement(AgentText, { text }));
const PATCH = "--- a.py\n+++ b.py\n@@ -1,2 +1,2 @@\n def f():\n-    return __import__(a)  \n+\treturn <b>b</b>\n";

/** The text of a piece of HTML, as a browser reads it. */
const textOf = (html: string): string =>
  html.replace(/<[^>]*>/g, "").replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&quot;", '"').replaceAll("&#x27;", "'").replaceAll("&amp;", "&");
const inside = (html: string, tag: string): string => textOf(new RegExp(`<${tag}[ >].*?</${tag}>`, "s").exec(html)?.[0] ?? "");

test("a patch is shown verbatim, removed and added lines as such", () => {
  const html = shown(PATCH);
  expect(inside(html, "pre")).toBe(PATCH);
  expect(html).toContain('<del class="patch-gone"><span class="sign">-</span>    return __import__(a)  \n</del>');
  expect(html).toContain('<ins class="patch-new"><span class="sign">+</span>\treturn &lt;b&gt;b&lt;/b&gt;\n</ins>');
  expect(html).not.toContain("<strong>");
  expect(html).not.toContain("<li>");
});

test("the prose around it is Markdown", () => expect(shown(`A **bold** word.\n\n${PATCH}`)).toContain("<strong>bold</strong>"));

test("a traceback is shown as it is", () => {
  const text = 'Traceback:\n  File "a.py", line 3\n    *x* = __import__(name)\nValueError: no';
  expect(inside(shown(text), "pre")).toBe(text);
});

test("the exact text is there with the switch, which says whether it is on", () => {
  const html = shown("some *text*");
  expect(html).toMatch(/<button[^>]*aria-pressed="false"[^>]*>Raw<\/button>/);
  const raw = "some *text*  \n\n<script>x</script>\n- point\n";
  expect(inside(renderToStaticMarkup(createElement(Exact, { text: raw })), "pre")).toBe(raw);
});

test("no HTML is made of what an agent wrote", () => {
  for (const text of ["<script>x</script>", "```diff\n+<img src=x onerror=y>\n```", "a:\n  <svg onload=x>", "@@ -1 +1 @@\n-<b>\n+<i>"]) {
    expect(shown(text)).not.toMatch(/<(script|img|svg|b|i)[ >]/);
  }
});

test("names with two underscores are names, not bold", () => {
  const html = renderToStaticMarkup(createElement(Markdown, { text: "See __import__(name) and __init__.py, **really**." }));
  expect(html).toContain("See __import__(name) and __init__.py, <strong>really</strong>.");
});

test("a diff in a fence inside of a list is a diff, too", () => {
  const html = shown("- do this:\n\n    ```diff\n    -    old\n    +    new\n    ```\n");
  expect(html).toContain('<del class="patch-gone"><span class="sign">-</span>    old\n</del>');
});

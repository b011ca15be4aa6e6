import { expect, test } from "vitest";
import { changed, diff } from "../src/logic/diff";

const told = (before: string, after: string): string[] => diff(before, after).map((line) => ({ same: " ", gone: "-", new: "+" })[line.kind] + line.text);

test("a line that changed is taken away and put there", () => expect(told("a\nb\nc", "a\nB\nc")).toEqual([" a", "-b", "+B", " c"]));
test("a line that came stands where it came", () => expect(told("a\nc", "a\nb\nc")).toEqual([" a", "+b", " c"]));
test("the same is the same", () => expect(told("a\nb", "a\nb")).toEqual([" a", " b"]));
test("from nothing everything is new", () => expect(told("", "a\nb")).toEqual(["+a", "+b"]));
test("an end of line more is no change", () => expect(changed("a\n", "a")).toBe(false));

test("whatever changes, both texts can be read out of it", () => {
  let seed = 7;
  const next = (): number => (seed = (seed * 48271) % 2147483647);
  for (let round = 0; round < 300; round++) {
    const text = (): string[] => Array.from({ length: next() % 12 }, () => "abcd"[next() % 4] as string);
    const [before, after] = [text(), text()];
    const lines = diff(before.join("\n"), after.join("\n"));
    expect(lines.filter((one) => one.kind !== "new").map((one) => one.text)).toEqual(before);
    expect(lines.filter((one) => one.kind !== "gone").map((one) => one.text)).toEqual(after);
  }
});

test("texts with nothing in common take no longer than the bound", () => {
  const many = (name: string): string => Array.from({ length: 3000 }, (_, n) => name + n).join("\n");
  expect(diff(many("a"), many("b"))).toHaveLength(6000);
});

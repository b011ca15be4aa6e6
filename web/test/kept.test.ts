import { expect, test } from "vitest";
import { kept } from "../src/logic/kept";

const OLD = { run: { status: "running", places: ["a"] }, steps: [{ n: 1, text: "x" }, { n: 2, text: "" }] };
const copy = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;

test("an equal answer is the old one", () => {
  expect(kept(OLD, copy(OLD))).toBe(OLD);
});

test("what has changed is new, and everything beside it stays", () => {
  const now = copy(OLD);
  now.steps[1] = { n: 2, text: "done" };
  now.steps.push({ n: 3, text: "" });
  const found = kept(OLD, now);
  expect(found).toEqual(now);
  expect(found.run).toBe(OLD.run);
  expect(found.steps[0]).toBe(OLD.steps[0]);
});

test("what is left out, added, or of another kind is a change", () => {
  const cases: [unknown, unknown][] = [[{ a: 1, b: undefined }, { a: 1 }], [{ a: 1 }, { a: 1, b: undefined }], [[1, 2], [1]], [{}, []], [null, {}], [undefined, {}], [{ a: [] }, { a: null }]];
  for (const [old, now] of cases) {
    expect(kept(old, now)).toStrictEqual(now);
    expect(kept(old, now)).not.toBe(old);
  }
});

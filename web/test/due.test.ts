import { expect, test } from "vitest";
import { dueTime } from "../src/logic/time";

test("a due date of the form is sent as a moment, and none as null", () => {
  expect(dueTime("2030-01-31T12:00")).toBe(new Date(2030, 0, 31, 12).toISOString());
  expect(dueTime("")).toBeNull();
});

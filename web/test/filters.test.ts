import { expect, test } from "vitest";
import { endedOn, read, toggled } from "../src/logic/filters";

const NOW = Date.parse("2026-11-16T12:00:30Z");

test("words with a colon filter, the others are looked for in the title", () => {
  const { filter, wrong } = read("status:waiting workflow:helpdesk printer on fire", NOW);
  expect(filter).toEqual({ status: "waiting", workflow_id: "helpdesk", q: "printer on fire" });
  expect(wrong).toEqual([]);
});

test("an ending is a status too", () => expect(read("status:stuck", NOW).filter).toEqual({ terminal_status: "aborted_stuck" }));

test("since is a length of time, and the same for a whole minute", () => {
  expect(read("since:24h", NOW).filter).toEqual({ since: "2026-11-15T12:00:00.000Z" });
  expect(read("since:24h", NOW + 20_000).filter).toEqual(read("since:24h", NOW).filter);
});

test("what is not understood is said, and changes nothing", () => {
  const { filter, wrong } = read("status:happy since:soon x", NOW);
  expect(filter).toEqual({ q: "x" });
  expect(wrong).toEqual(["status:happy", "since:soon"]);
});

test("a colon in a title is no filter", () => expect(read("Error: x", NOW).filter).toEqual({ q: "Error: x" }));

test("a filter is put on, exchanged and taken off", () => {
  expect(toggled("printer", "status", "stuck")).toBe("status:stuck printer");
  expect(toggled("status:stuck printer", "status", "done")).toBe("status:done printer");
  expect(toggled("status:done printer", "status", "done")).toBe("printer");
});

test("a day is asked for by its word, from midnight to midnight", () => {
  const word = endedOn(new Date(2026, 0, 31, 15));
  expect(word).toBe("ended:2026-01-31");
  const { filter } = read(word, 0);
  expect([filter.ended_since, filter.ended_before]).toEqual([new Date(2026, 0, 31).toISOString(), new Date(2026, 1, 1).toISOString()]);
  expect(read("ended:yesterday", 0).wrong).toEqual(["ended:yesterday"]);
});

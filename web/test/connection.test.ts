import { expect, test } from "vitest";
import { next, pause, TRIES_MAX, WAIT_SECONDS, type Connection } from "../src/api/connection";
import { Frames } from "../src/api/frames";

test("a lost connection is tried again, and after some tries called offline since it was lost", () => {
  let state: Connection = { kind: "live" };
  state = next(state, "lost", 1000);
  expect(state).toEqual({ kind: "reconnecting", since: 1000, tries: 1 });
  for (let n = 0; n < TRIES_MAX; n++) state = next(state, "lost", 2000 + n);
  expect(state).toEqual({ kind: "offline", since: 1000, tries: TRIES_MAX + 1 });
  expect(next(state, "opened", 9000)).toEqual({ kind: "live" });
});

test("the pause between tries grows and has an end", () => {
  let state: Connection = { kind: "live" };
  const pauses: number[] = [];
  for (let n = 0; n < 20; n++) {
    state = next(state, "lost", n);
    pauses.push(pause(state));
  }
  expect(pauses).toEqual([...pauses].sort((a, b) => a - b));
  expect(pauses.at(-1)).toBe(WAIT_SECONDS.at(-1));
});

test("whoever is not let in any more does not try on", () => expect(next({ kind: "live" }, "refused", 0)).toEqual({ kind: "signed out" }));

test("events come out whole, however they are cut up", () => {
  const text = 'id: 4-1\nevent: asked\ndata: {"a":1}\n\n:\n\nid: 4-2\nevent: ended\ndata: {}\n\n';
  for (let size = 1; size < text.length; size++) {
    const frames = new Frames();
    const found = [];
    for (let at = 0; at < text.length; at += size) found.push(...frames.take(text.slice(at, at + size)));
    expect(found).toEqual([
      { id: "4-1", type: "asked", data: '{"a":1}' },
      { id: "4-2", type: "ended", data: "{}" },
    ]);
  }
});

test("a position without an event is kept", () => expect(new Frames().take(":\nid: 9-0\n\n")).toEqual([{ id: "9-0", type: "message", data: "" }]));

import { expect, test } from "vitest";
import type { Channel, HistoryEvent, Posted } from "../src/api/schema";
import { clockOf, countdown, initials, joined, lineOf, MODES, promiseOf, receiptOf, RING_MAX, seats, standingOf, turnSentence, type Mode } from "../src/logic/channels";

const NOW = Date.parse("2026-11-16T12:00:30Z");
const TURN = { agent_id: "ada", number: 3, granted_at: "2026-11-16T12:00:00Z", timeout_at: "2026-11-16T12:01:00Z", wait_until: null, seconds_left: 0, interrupted: false };
const PAUSED = { ...TURN, timeout_at: null, wait_until: "2026-11-16T12:05:00Z", seconds_left: 42 };
const ROOM = {
  id: "reviews",
  turnConfig: { humanInterruptMode: "inject", order: "round_robin" },
  active: "ada",
  turn: TURN,
  queue: ["ada", "bo", "cy"],
  next: "bo",
  members: [{ agent_id: "ada", state: "ACTIVE" }],
  paused: false,
  resting: "",
} as unknown as Channel;
const IDLE = { ...ROOM, active: null, turn: null };
const posted = (disposition: string): Posted => ({ disposition }) as Posted;

test("who has the turn is said, for how long, or why nobody has it", () => {
  expect(turnSentence(ROOM, NOW)).toBe("ada has had the turn for 30 s.");
  expect(turnSentence({ ...ROOM, active: null, turn: { ...PAUSED, interrupted: true } }, NOW)).toBe("A person has paused the turn of ada. It goes on by itself in 4 min 30 s.");
  expect(turnSentence({ ...ROOM, active: null, turn: PAUSED }, NOW)).toContain("It loses the turn in 4 min 30 s.");
  expect(turnSentence({ ...IDLE, resting: "a full cycle without a message" }, NOW)).toContain("rests (a full cycle without a message)");
  expect(turnSentence({ ...IDLE, paused: true }, NOW)).toContain("is paused");
  expect(turnSentence({ ...IDLE, members: [], queue: [] }, NOW)).toContain("no agent");
  expect(turnSentence({ ...IDLE, queue: [] }, NOW)).toContain("Nobody is in the queue");
  expect(turnSentence({ ...IDLE, turnConfig: { ...ROOM.turnConfig, order: "manual" } }, NOW)).toContain("grant it");
  expect(turnSentence(IDLE, NOW)).toContain("work elsewhere");
});

test("a channel's state is one word", () => {
  const words = [ROOM, { ...ROOM, active: null, turn: PAUSED }, { ...ROOM, paused: true }, { ...IDLE, resting: "x" }, { ...IDLE, queue: [] }].map((one) => standingOf(one)[1]);
  expect(words).toEqual(["In turn", "Turn paused", "Paused", "Rests", "Empty"]);
});

test("of every mode it is said before what will become of a message, and after what became of it", () => {
  const told = (mode: Mode, disposition: string): string => receiptOf(posted(disposition), mode, "ada");
  expect(told("inject", "delivered")).toBe("ada has it.");
  expect(told("parallel", "delivered")).toBe("Everybody in the queue has it.");
  expect(told("queue", "queued")).toBe("It waits for the end of the turn of ada.");
  expect(told("interrupt", "queued")).toContain("The turn of ada is paused");
  expect(told("inject", "logged")).toContain("comes to nobody");
  expect(receiptOf(posted("delivered"), "inject", null)).toContain("has the turn now");
  expect(receiptOf(posted("queued"), "queue", null)).toBe("It waits for the next turn.");
  for (const mode of Object.keys(MODES) as Mode[]) {
    const room = { ...ROOM, turnConfig: { ...ROOM.turnConfig, humanInterruptMode: mode } };
    expect(promiseOf(room)).toBe(MODES[mode].promise);
  }
  expect(promiseOf({ ...ROOM, active: null, turn: PAUSED })).toContain("The turn is paused");
  expect(promiseOf({ ...IDLE, members: [] })).toContain("Nobody is here");
  expect(promiseOf({ ...IDLE, paused: true })).toContain("The channel is paused");
  expect(promiseOf(IDLE)).toBe("It goes to the next turn.");
});

test("the clock runs to the end of the turn, and stands still while it is paused", () => {
  expect(clockOf(TURN, NOW)).toEqual({ seconds: 30, share: 0.5 });
  expect(clockOf(TURN, NOW + 3_600_000)).toEqual({ seconds: 0, share: 0 });
  expect(clockOf(PAUSED, NOW + 3_600_000)).toEqual({ seconds: 42, share: 1 });
  expect([countdown(0), countdown(41.2), countdown(725)]).toEqual(["0:00", "0:42", "12:05"]);
});

test("the queue stands around a circle by position; of a long one whoever has the turn, and those after", () => {
  const three = seats(ROOM, 100);
  expect(three.seats.map((one) => one.agent)).toEqual(["ada", "bo", "cy"]);
  expect(three.seats[0]).toMatchObject({ y: -100 });
  expect(three.hidden).toBe(0);
  const queue = Array.from({ length: 30 }, (_, n) => `a${n}`);
  const many = seats({ ...ROOM, queue, turn: { ...TURN, agent_id: "a27" } }, 100);
  expect(many.seats.map((one) => one.agent).slice(0, 4)).toEqual(["a27", "a28", "a29", "a0"]);
  expect([many.seats.length, many.hidden]).toEqual([RING_MAX, 30 - RING_MAX]);
});

test("two letters stand for a name", () => {
  expect(["ada", "dora.reviewer", "x", "ГоРа", "—"].map(initials)).toEqual(["AD", "DR", "X", "ГО", "—"]);
});

test("an event becomes the line that the log would show, or none", () => {
  const event = { stream: "channel:reviews", seq: 7, type: "MessagePosted", at: "2026-11-16T12:00:00Z", actor: "ana", author: "ana", human: true, text: "hello" } as HistoryEvent;
  expect(lineOf(event)).toEqual({ id: 7, kind: "message", author: "ana", human: true, text: "hello", to: null, code: "", at: event.at });
  expect(lineOf({ ...event, type: "Noticed", actor: "engine", code: "rested" })).toMatchObject({ kind: "notice", author: "engine", human: false, code: "rested" });
  expect(lineOf({ ...event, type: "TurnGranted" })).toBeUndefined();
});

test("lines that come twice stand once, in order", () => {
  const line = (id: number): { id: number } => ({ id });
  expect(joined([line(1), line(4)], [line(4), line(2)])).toEqual([line(1), line(2), line(4)]);
});

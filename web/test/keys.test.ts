import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { arm, ARM_MS, DecidedClicks, type Screen } from "../src/logic/arming";
import { keyDown, type Pressed } from "../src/ui/keys";

const nowhere = { closest: () => null };
const inField = { closest: () => ({}) };

function press(key: string, more: Partial<Pressed> = {}): Pressed & { preventDefault: ReturnType<typeof vi.fn> } {
  const event = { key, repeat: false, ctrlKey: false, metaKey: false, altKey: false, defaultPrevented: false, target: nowhere, ...more, preventDefault: vi.fn() };
  return event as never;
}

test("a key that is held acts once", () => {
  const approve = vi.fn();
  keyDown(press("a"), { a: approve });
  for (let n = 0; n < 20; n++) keyDown(press("a", { repeat: true }), { a: approve });
  expect(approve).toHaveBeenCalledTimes(1);
  keyDown(press("a"), { a: approve });
  expect(approve).toHaveBeenCalledTimes(2);
});

test("a key that was held before the shortcut was there does nothing", () => {
  const approve = vi.fn();
  keyDown(press("a", { repeat: true }), { a: approve });
  expect(approve).not.toHaveBeenCalled();
});

test("keys that only move may be held", () => {
  const move = vi.fn();
  for (const repeat of [false, true]) {
    const event = press("j", { repeat });
    event.preventDefault.mockImplementation(() => void ((event as { defaultPrevented: boolean }).defaultPrevented = true));
    keyDown(event, { "/": () => undefined }); // other keys, of another part of the page, are looked at before
    keyDown(event, { j: move }, { mayRepeat: true });
  }
  expect(move).toHaveBeenCalledTimes(2);
});

test("a key that opened a field is not typed into it while it is held", () => {
  keyDown(press("r"), { r: () => undefined });
  const held = press("r", { repeat: true, target: inField as never });
  keyDown(held, { r: () => undefined });
  expect(held.preventDefault).toHaveBeenCalled();
  keyDown(press("r", { target: inField as never }), { r: () => undefined }); // pressed anew: typed
  const typed = press("r", { repeat: true, target: inField as never });
  keyDown(typed, { r: () => undefined });
  expect(typed.preventDefault).not.toHaveBeenCalled();
});

test.each([{ ctrlKey: true }, { metaKey: true }, { altKey: true }, { defaultPrevented: true }, { target: inField as never }])("no shortcut with %o", (more) => {
  const does = vi.fn();
  keyDown(press("a", more), { a: does });
  expect(does).not.toHaveBeenCalled();
});

class FakeScreen implements Screen {
  visible = true;
  private frames: (() => void)[] = [];
  private watchers = new Set<() => void>();
  isVisible = (): boolean => this.visible;
  painted = (then: () => void): (() => void) => {
    this.frames.push(then);
    return () => (this.frames = this.frames.filter((one) => one !== then));
  };
  watch = (changed: () => void): (() => void) => (this.watchers.add(changed), () => void this.watchers.delete(changed));
  paint(): void {
    const due = this.frames;
    this.frames = [];
    due.forEach((one) => one());
  }
  show(visible: boolean): void {
    this.visible = visible;
    this.watchers.forEach((one) => one());
  }
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("keys decide a second after the question was painted, and not before", () => {
  const [screen, told] = [new FakeScreen(), vi.fn()];
  arm(screen, told);
  vi.advanceTimersByTime(5000); // nothing was painted yet
  expect(told).not.toHaveBeenCalledWith(true);
  screen.paint();
  vi.advanceTimersByTime(ARM_MS - 1);
  expect(told).not.toHaveBeenCalledWith(true);
  vi.advanceTimersByTime(1);
  expect(told).toHaveBeenLastCalledWith(true);
  expect(ARM_MS).toBe(1000);
});

test("a question that has left the screen never arms", () => {
  const [screen, told] = [new FakeScreen(), vi.fn()];
  const stop = arm(screen, told);
  screen.paint();
  vi.advanceTimersByTime(ARM_MS - 1);
  stop();
  vi.advanceTimersByTime(5000);
  expect(told).not.toHaveBeenCalledWith(true);
});

test("in a tab that nobody sees the second does not run, and it runs anew on return", () => {
  const [screen, told] = [new FakeScreen(), vi.fn()];
  arm(screen, told);
  screen.paint();
  vi.advanceTimersByTime(500);
  screen.show(false);
  expect(told).toHaveBeenLastCalledWith(false);
  vi.advanceTimersByTime(5000);
  expect(told).not.toHaveBeenCalledWith(true);
  screen.show(true);
  screen.paint();
  vi.advanceTimersByTime(ARM_MS);
  expect(told).toHaveBeenLastCalledWith(true);
});

test("a double click decides one question", () => {
  const clicks = new DecidedClicks();
  expect(clicks.allows("first", { timeStamp: 1000, detail: 1 })).toBe(true);
  clicks.sent("first", 1000);
  expect(clicks.allows("second", { timeStamp: 1499, detail: 1 })).toBe(false); // soon, wherever it is counted
  expect(clicks.allows("second", { timeStamp: 1900, detail: 2 })).toBe(false); // slow, counted by the system
  expect(clicks.allows("second", { timeStamp: 1500, detail: 1 })).toBe(true);
  expect(clicks.allows("first", { timeStamp: 1001, detail: 2 })).toBe(true); // it is the same question
});

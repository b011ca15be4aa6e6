/**
 * When a person may decide without having to look twice: keys once the question has been on screen
 * for a second, clicks unless they are the rest of a double click on the question before.
 */
export const ARM_MS = 1000;
const DOUBLE_CLICK_MS = 500;

/** What is known of the screen: whether anybody can see it, and when it was painted. */
export interface Screen {
  isVisible: () => boolean;
  painted: (then: () => void) => () => void;
  watch: (changed: () => void) => () => void;
}

/** Tells whether keys may decide, from now until it is stopped. */
export function arm(screen: Screen, tell: (armed: boolean) => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let unpaint: (() => void) | undefined;
  const stop = (): void => {
    unpaint?.();
    clearTimeout(timer);
  };
  const start = (): void => {
    stop();
    tell(false);
    if (!screen.isVisible()) return;
    unpaint = screen.painted(() => {
      timer = setTimeout(() => tell(true), ARM_MS);
    });
  };
  const unwatch = screen.watch(start);
  start();
  return () => {
    unwatch();
    stop();
  };
}

/** Remembers the last question that was decided, for the clicks that come after it. */
export class DecidedClicks {
  private question: string | undefined;
  private at = 0;

  sent(question: string, at: number): void {
    [this.question, this.at] = [question, at];
  }

  allows(question: string, click: { timeStamp: number; detail: number }): boolean {
    if (this.question === undefined || this.question === question) return true;
    return click.detail <= 1 && click.timeStamp - this.at >= DOUBLE_CLICK_MS;
  }
}

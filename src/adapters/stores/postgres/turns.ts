interface Turn {
  readonly begun: Promise<void>;
  readonly ended: Promise<void>;
}

/**
 * Lets statements that wake up together run one after another: an idle process then keeps one connection warm. Each
 * further one would plan all of them anew, at a multiple of their cost, and hold memory of the server. A statement that
 * hangs delays the others once, and only for a moment.
 */
export class Turns {
  readonly #longestMs: number;
  #last: Turn | undefined;

  /** @param longestMs of a turn; by default far longer than a statement takes that does not wait itself */
  constructor(longestMs = LONGEST_MS) {
    this.#longestMs = longestMs;
  }

  /** Waits for the turn. @returns to call once when the statement has ended */
  async take(): Promise<() => void> {
    const before = this.#last;
    let end = (): void => {};
    const turn = {
      begun: before === undefined ? Promise.resolve() : before.begun.then(() => this.#passes(before)),
      ended: new Promise<void>((resolve) => {
        end = resolve;
      }),
    };
    this.#last = turn;
    await turn.begun;
    return () => {
      if (this.#last === turn) this.#last = undefined;
      end();
    };
  }

  /** A plain timer: an idle process waits here dozens of times a second. */
  #passes({ ended }: Turn): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, this.#longestMs);
      void ended.then(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }
}

const LONGEST_MS = 20;

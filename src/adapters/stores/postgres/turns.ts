import { atMost } from "../../../time/wait.ts";

/**
 * Lets statements that wake up together run one after another: an idle process then keeps one connection warm. Each
 * further one would plan all of them anew, at a multiple of their cost, and hold memory of the server. One that takes
 * long holds up no other.
 */
export class Turns {
  readonly #longestWaitMs: number;
  #last: Promise<void> | undefined;

  /** @param longestWaitMs for the statement before; by default far longer than one takes that does not wait itself */
  constructor(longestWaitMs = LONGEST_WAIT_MS) {
    this.#longestWaitMs = longestWaitMs;
  }

  /** Waits for the turn. @returns to call once when the statement has ended */
  async take(): Promise<() => void> {
    const before = this.#last;
    let end = (): void => {};
    const turn = new Promise<void>((resolve) => {
      end = resolve;
    });
    this.#last = turn;
    if (before !== undefined) await atMost(this.#longestWaitMs, before);
    return () => {
      if (this.#last === turn) this.#last = undefined;
      end();
    };
  }
}

const LONGEST_WAIT_MS = 20;

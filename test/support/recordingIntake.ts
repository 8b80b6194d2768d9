import { setImmediate as turn } from "node:timers/promises";
import type { BrokerMessage, Intake } from "../../src/ports/source.ts";

/**
 * An intake for the tests of sources: writes down what it was given and what it took. Each `take` lasts at least one turn of the event loop, so that
 * takes that run beside each other are seen.
 */
export class RecordingIntake implements Intake {
  /** Every call's messages, in the order of the calls. */
  readonly offered: (readonly BrokerMessage[])[] = [];
  /** The messages whose `take` resolved, in that order: these, and no others, may be acknowledged. */
  readonly taken: BrokerMessage[] = [];
  /** Which messages the inbox table refuses. */
  refuses: (message: BrokerMessage) => boolean = () => false;
  #running = 0;
  #mostRunning = 0;
  #refused = 0;
  #behaviour: "open" | "held" | "down" = "open";
  #waiting: (() => void)[] = [];

  /** Calls of `take` that have not settled. */
  get running(): number {
    return this.#running;
  }

  /** Most calls of `take` that ever ran at the same time. */
  get mostRunning(): number {
    return this.#mostRunning;
  }

  /** Calls of `take` that rejected with their signal's reason. */
  get refused(): number {
    return this.#refused;
  }

  /** Everything that was given, taken or not, in the order of the calls. */
  get seen(): readonly BrokerMessage[] {
    return this.offered.flat();
  }

  /** Every `take` from now on waits for `release`, whatever its signal does: an insert that is under way. */
  hold(): void {
    this.#behaviour = "held";
  }

  /** Every `take` from now on waits for `release`, and rejects with its signal's reason when that aborts first: a database that is down. */
  goDown(): void {
    this.#behaviour = "down";
  }

  /** Lets the waiting calls and all further ones take their messages. */
  release(): void {
    this.#behaviour = "open";
    for (const goOn of this.#waiting.splice(0)) goOn();
  }

  async take(messages: readonly BrokerMessage[], signal: AbortSignal): Promise<readonly BrokerMessage[]> {
    this.offered.push(messages);
    this.#running += 1;
    this.#mostRunning = Math.max(this.#mostRunning, this.#running);
    try {
      await turn();
      if (this.#behaviour === "held") await this.#released();
      else if (this.#behaviour === "down") await this.#releasedOr(signal);
      const refused = messages.filter((message) => this.refuses(message));
      this.taken.push(...messages.filter((message) => !refused.includes(message)));
      return refused;
    } finally {
      this.#running -= 1;
    }
  }

  #released(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  async #releasedOr(signal: AbortSignal): Promise<void> {
    let onAbort = () => {};
    const aborted = new Promise<void>((resolve) => {
      onAbort = resolve;
    });
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    await Promise.race([aborted, this.#released()]);
    signal.removeEventListener("abort", onAbort);
    if (this.#behaviour === "open") return;
    this.#refused += 1;
    throw signal.reason;
  }
}

import type { BrokerMessage } from "../../../ports/source.ts";

/** A message of the stream, and the subject on which it is acknowledged. */
export interface Delivery {
  readonly acknowledgeTo: string;
  readonly message: BrokerMessage;
}

/** The messages at hand: those that are being taken, and behind them those that wait. */
export class Hand {
  readonly #batchSize: number;
  #taking: readonly Delivery[] = [];
  #waiting: Delivery[] = [];
  #wake: () => void = () => {};
  #closed = false;

  constructor(batchSize: number) {
    this.#batchSize = batchSize;
  }

  /** No more than one batch is at hand: another one fits. */
  get hasRoom(): boolean {
    return this.#taking.length + this.#waiting.length <= this.#batchSize;
  }

  get all(): readonly Delivery[] {
    return [...this.#taking, ...this.#waiting];
  }

  add(delivery: Delivery): void {
    this.#waiting.push(delivery);
    this.#wake();
  }

  /** Waits for messages and returns the next batch, in the order of arrival; empty after `close`. The batch counts as being taken until `done`. */
  async next(): Promise<readonly Delivery[]> {
    if (this.#waiting.length === 0 && !this.#closed) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#closed) return [];
    this.#taking = this.#waiting.splice(0, this.#batchSize);
    return this.#taking;
  }

  /** The batch that `next` returned is taken. */
  done(): void {
    this.#taking = [];
  }

  /** The batch that `next` returned was not taken: it waits again, in front. */
  putBack(): void {
    this.#waiting = [...this.#taking, ...this.#waiting];
    this.#taking = [];
  }

  /** `next` returns no batch any more. */
  close(): void {
    this.#closed = true;
    this.#wake();
  }

  /** Lets go of the messages that wait, and returns them. */
  release(): readonly Delivery[] {
    return this.#waiting.splice(0);
  }
}

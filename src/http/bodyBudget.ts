import type { Clock } from "../time/clock.ts";

/** A body that is being read, or decoded. */
export interface BodyHolder {
  /** Drops the body and answers its sender. */
  readonly giveUp: () => void;
}

/**
 * Up to this size a body costs no more than its connection and is not counted: common messages never use the budget.
 */
export const UNCOUNTED_BYTES = 16 * 1024;

/** A body without progress for this long is dropped when another one needs the memory, in ms. */
const STALLED_MS = 1000;

/**
 * The memory that unfinished request bodies of the process may hold together. When it is used up, stalled bodies are
 * dropped first, so that senders who leave bodies unfinished harm only themselves; without any, the body that asks is
 * refused.
 */
export class BodyBudget {
  readonly #maxBytes: number;
  readonly #clock: Pick<Clock, "monotonic">;
  /** The one that progressed longest ago first. */
  readonly #holders = new Map<BodyHolder, { readonly bytes: number; readonly advancedAt: number }>();
  #bytes = 0;

  /**
   * @param maxBytes the budget; a single body may exceed it, or one within the limit of its route could never be read
   */
  constructor(maxBytes: number, clock: Pick<Clock, "monotonic">) {
    this.#maxBytes = maxBytes;
    this.#clock = clock;
  }

  /** Bytes held at present. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Lets a body hold so many bytes from now on, if there is room. Also records that the body has progressed.
   *
   * @param bytes the total, not only the addition
   * @returns false when there is no room: it then holds what it held before
   */
  hold(holder: BodyHolder, bytes: number): boolean {
    const held = this.#holders.get(holder)?.bytes ?? 0;
    const more = bytes - held;
    if (more > 0 && this.#lacks(more, holder)) this.#giveUpStalled(more, holder);
    if (more > 0 && this.#lacks(more, holder)) return false;
    this.#bytes += more;
    this.#holders.delete(holder);
    this.#holders.set(holder, { bytes, advancedAt: this.#clock.monotonic() });
    return true;
  }

  /** Frees everything that the body holds. */
  release(holder: BodyHolder): void {
    this.#bytes -= this.#holders.get(holder)?.bytes ?? 0;
    this.#holders.delete(holder);
  }

  #lacks(more: number, holder: BodyHolder): boolean {
    const alone = this.#holders.size === 0 || (this.#holders.size === 1 && this.#holders.has(holder));
    return !alone && this.#bytes + more > this.#maxBytes;
  }

  #giveUpStalled(more: number, asking: BodyHolder): void {
    const latest = this.#clock.monotonic() - STALLED_MS;
    for (const [holder, { advancedAt }] of this.#holders) {
      if (advancedAt > latest || !this.#lacks(more, asking)) return;
      if (holder === asking) continue;
      this.release(holder);
      holder.giveUp();
    }
  }
}

import { StoreError } from "../../../model/errors.ts";

/**
 * Keeps one connection of a pool for receipts, and one for all other statements: whoever has the rest waits. So a table
 * of deliveries that is locked or slow leaves messages a way in, and an inbox that is leaves the deliveries theirs.
 */
export class Reserve {
  readonly #poolSize: number;
  readonly #longestWaitMs: number;
  readonly #receipts = new Side("the other statements");
  readonly #others = new Side("receipts");

  /**
   * @param poolSize most connections; of one or two none is kept
   * @param longestWaitMs for a connection; 0 for any time
   */
  constructor(poolSize: number, longestWaitMs: number) {
    this.#poolSize = poolSize;
    this.#longestWaitMs = longestWaitMs;
  }

  /** What waits for a connection that is not kept. */
  get waiting(): number {
    return this.#receipts.waiting.length + this.#others.waiting.length;
  }

  /**
   * Runs what takes one connection.
   *
   * @param name of its statement, which tells receipts from the others
   * @throws StoreError `unavailable` when it has waited too long; what `work` throws
   */
  async run<T>(name: string, work: () => Promise<T>): Promise<T> {
    if (NEEDED_BY_RECEIPTS.has(name)) return await work();
    const isReceipt = RECEIPT.test(name);
    const side = isReceipt ? this.#receipts : this.#others;
    side.hasCome = true;
    const isFree = () => side.used < this.#mostOf(isReceipt ? this.#others : this.#receipts);
    if (side.waiting.length > 0 || !isFree()) await this.#turn(name, side);
    else side.used += 1;
    try {
      return await work();
    } finally {
      side.used -= 1;
      while (isFree() && side.waiting.length > 0) side.waiting.shift()?.();
    }
  }

  /** @returns how many connections a side may have beside the other one */
  #mostOf(other: Side): number {
    return other.hasCome && this.#poolSize >= LEAST_POOL ? this.#poolSize - 1 : Number.POSITIVE_INFINITY;
  }

  /** Waits for its turn, and counts it as used from then on. */
  #turn(name: string, side: Side): Promise<void> {
    return new Promise((resolve, reject) => {
      const go = () => {
        clearTimeout(timer);
        side.used += 1;
        resolve();
      };
      const giveUp = () => {
        side.waiting.splice(side.waiting.indexOf(go), 1);
        const reason = `no connection was free for ${this.#longestWaitMs} ms, but for the one kept for ${side.other}`;
        reject(new StoreError("unavailable", `${name}: ${reason}`));
      };
      const timer = this.#longestWaitMs > 0 ? setTimeout(giveUp, this.#longestWaitMs) : undefined;
      side.waiting.push(go);
    });
  }
}

/** Statements that must not take the last connection from those of the other side. */
class Side {
  /** The other side, for errors. */
  readonly other: string;
  /** Whether any has come: nothing is kept for statements that a process does not have. */
  hasCome = false;
  used = 0;
  readonly waiting: (() => void)[] = [];

  constructor(other: string) {
    this.other = other;
  }
}

const RECEIPT = /^inbox\.(insert|present)\b/;
/** Readiness, and where buckets are. They touch neither table. */
const NEEDED_BY_RECEIPTS: ReadonlySet<string> = new Set([
  "ping",
  "buckets.all",
  "buckets.open",
  "buckets.arrive",
  "buckets.take back",
  "buckets.supersede",
]);
const LEAST_POOL = 3;

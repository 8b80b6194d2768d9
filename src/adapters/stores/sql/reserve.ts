import { StoreError } from "../../../model/errors.ts";

/**
 * Keeps one connection of a pool for receipts: other statements wait while they have the rest. So a table of deliveries
 * that is locked, or slow, leaves messages a way in.
 */
export class Reserve {
  readonly #poolSize: number;
  readonly #longestWaitMs: number;
  /** Whether receipts have come: a process without them has all connections for the others. */
  #receives = false;
  #used = 0;
  readonly #waiting: (() => void)[] = [];

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
    return this.#waiting.length;
  }

  /**
   * Runs what takes one connection.
   *
   * @param name of its statement, which tells receipts from the others
   * @throws StoreError `unavailable` when it has waited too long; what `work` throws
   */
  async run<T>(name: string, work: () => Promise<T>): Promise<T> {
    const isReceipt = RECEIPT.test(name);
    if (isReceipt) this.#receives = true;
    if (isReceipt || NEEDED_BY_RECEIPTS.has(name)) return await work();
    if (this.#waiting.length > 0 || !this.#isFree()) await this.#turn(name);
    else this.#used += 1;
    try {
      return await work();
    } finally {
      this.#used -= 1;
      while (this.#isFree() && this.#waiting.length > 0) this.#waiting.shift()?.();
    }
  }

  #isFree(): boolean {
    return !this.#receives || this.#poolSize < LEAST_POOL || this.#used < this.#poolSize - 1;
  }

  /** Waits for its turn, and counts it as used from then on. */
  #turn(name: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const go = () => {
        clearTimeout(timer);
        this.#used += 1;
        resolve();
      };
      const giveUp = () => {
        this.#waiting.splice(this.#waiting.indexOf(go), 1);
        const reason = `no connection was free for ${this.#longestWaitMs} ms, but for the one kept for receipts`;
        reject(new StoreError("unavailable", `${name}: ${reason}`));
      };
      const timer = this.#longestWaitMs > 0 ? setTimeout(giveUp, this.#longestWaitMs) : undefined;
      this.#waiting.push(go);
    });
  }
}

const RECEIPT = /^inbox\.(insert|present)\b/;
/** Readiness, and where buckets are. They touch no table of deliveries. */
const NEEDED_BY_RECEIPTS: ReadonlySet<string> = new Set(["ping", "buckets.all", "buckets.open"]);
const LEAST_POOL = 3;

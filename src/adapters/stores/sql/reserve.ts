import { errorText, StoreError } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";
import { backoffMs, sleep } from "../../../time/wait.ts";

interface ReserveOptions {
  readonly poolSize: number;
  /** For a connection, in ms; 0 for any time. */
  readonly longestWaitMs: number;
  /** Most connections of this store while it shares the pool with others; undefined while it is alone. */
  readonly share?: () => number | undefined;
}

/** A statement, or a transaction. `readiness` needs no place; without a use it is of the other statements. */
export interface Reserved {
  readonly name: string;
  readonly use?: "receipt" | "readiness" | undefined;
}

/**
 * A store's share of a pool. It keeps a connection for receipts, and one for all other statements: a locked or slow
 * outbox never stops receipts, nor a locked inbox deliveries. A store that shares the pool leaves the others half of
 * it.
 */
export class Reserve {
  readonly #options: ReserveOptions;
  readonly #receipts = new Side();
  readonly #others = new Side();

  constructor(options: ReserveOptions) {
    this.#options = options;
  }

  get waiting(): number {
    return this.#receipts.waiting.length + this.#others.waiting.length;
  }

  /** @throws StoreError `unavailable` when it has waited too long; what `work` throws */
  async run<T>({ name, use }: Reserved, work: () => Promise<T>): Promise<T> {
    if (use === "readiness") return await work();
    const side = use === "receipt" ? this.#receipts : this.#others;
    side.hasCome = true;
    if (side.waiting.length > 0 || !this.#isFree(side)) await this.#turn(name, side);
    else side.usedConnections += 1;
    try {
      return await work();
    } finally {
      this.#end(side);
    }
  }

  #end(side: Side): void {
    side.usedConnections -= 1;
    // The other side first: it may have waited for this one.
    for (const each of [this.#otherOf(side), side]) {
      while (each.waiting.length > 0 && this.#isFree(each)) each.waiting.shift()?.();
    }
  }

  #isFree(side: Side): boolean {
    const { poolSize, share } = this.#options;
    const other = this.#otherOf(side);
    const most = share?.();
    const kept = other.hasCome && (most ?? poolSize) >= LEAST_POOL ? 1 : 0;
    if (most === undefined) return kept === 0 || side.usedConnections < poolSize - kept;
    return side.usedConnections < most - kept && side.usedConnections + other.usedConnections < most;
  }

  #otherOf(side: Side): Side {
    return side === this.#receipts ? this.#others : this.#receipts;
  }

  /** Waits for its turn, and counts it as used from then on. */
  #turn(name: string, side: Side): Promise<void> {
    const { longestWaitMs } = this.#options;
    return new Promise((resolve, reject) => {
      const go = () => {
        clearTimeout(timer);
        side.usedConnections += 1;
        resolve();
      };
      const giveUp = () => {
        side.waiting.splice(side.waiting.indexOf(go), 1);
        const reason = `no connection was free for ${longestWaitMs} ms beside those reserved for other work: raise database.poolSize`;
        reject(new StoreError("unavailable", `${name}: ${reason}`));
      };
      const timer = longestWaitMs > 0 ? setTimeout(giveUp, longestWaitMs) : undefined;
      side.waiting.push(go);
    });
  }
}

/** Statements that must not take the last connection from those of the other side. */
class Side {
  /** Whether any has come: nothing is kept for statements that a process does not have. */
  hasCome = false;
  usedConnections = 0;
  readonly waiting: (() => void)[] = [];
}

const LEAST_POOL = 3;

/**
 * Runs work up to four times, after random waits: victims of each other must not meet again. Logs each repetition.
 *
 * @param isExpectedToPass whether another try helps, after so far `tries`
 */
export async function retried<T>(
  log: Log,
  work: () => Promise<T>,
  isExpectedToPass: (error: unknown, tries: number) => boolean,
): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await work();
    } catch (error) {
      if (tries >= MOST_TRIES || !isExpectedToPass(error, tries)) throw error;
      log.debug({ reason: errorText(error), tries }, "trying a statement again");
      await sleep(backoffMs(tries, WAITS, Math.random));
    }
  }
}

export function isVictim(error: unknown): boolean {
  return error instanceof StoreError && (error.code === "contention" || error.code === "busy");
}

const MOST_TRIES = 4;
const WAITS = { firstMs: 20, longestMs: 200 };

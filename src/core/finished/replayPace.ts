import type { MessageId } from "../../model/rows.ts";

export interface ReplayPaceOptions {
  /** How many of these rows wait for their first try. */
  readonly untried: (ids: readonly MessageId[]) => Promise<number>;
  /** Rows after which it is time to look. */
  readonly batchSize: number;
  readonly wait: (ms: number, signal: AbortSignal) => Promise<void>;
}

/**
 * Keeps a replay from running ahead of the pollers. Rows are claimed in the order of their sequence, so replayed rows go before every fresh
 * one: 100,000 moved at once held fresh rows up for 19 s in a system that delivers 5,000 a second, at this pace for half a second.
 */
export class ReplayPace {
  readonly #options: ReplayPaceOptions;
  #moved: MessageId[] = [];
  #nobodyDelivers = false;

  constructor(options: ReplayPaceOptions) {
    this.#options = options;
  }

  /** Rows were moved. */
  moved(ids: readonly MessageId[]): void {
    if (!this.#nobodyDelivers) this.#moved.push(...ids);
  }

  /**
   * Waits until every row that was moved has been tried, so that the pollers have come to the fresh rows behind them. Goes on when the rest
   * makes no progress: it waits behind rows in backoff, which hold up their own keys alone. When nothing at all was tried there is no
   * poller, and then nothing to wait for, now and later.
   *
   * @throws the signal's reason when it aborts first
   */
  async room(signal: AbortSignal): Promise<void> {
    const { untried, batchSize, wait } = this.#options;
    const all = this.#moved.length;
    if (all < batchSize) return;
    let left = all;
    let fruitlessMs = 0;
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 1.2, LAST_WAIT_MS)) {
      const now = await untried(this.#moved);
      if (now < left) fruitlessMs = 0;
      left = Math.min(now, left);
      if (left === 0) break;
      if (fruitlessMs >= (left === all ? NO_POLLER_MS : NO_PROGRESS_MS)) {
        this.#nobodyDelivers = left === all;
        break;
      }
      await wait(waitMs, signal);
      signal.throwIfAborted();
      fruitlessMs += waitMs;
    }
    this.#moved = [];
  }
}

const FIRST_WAIT_MS = 50;
const LAST_WAIT_MS = 500;
const NO_PROGRESS_MS = 1000;
/** Longer than pollers need to notice the rows, and than most deliveries take that are before them. */
const NO_POLLER_MS = 5000;

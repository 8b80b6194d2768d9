import { StoreError } from "../../model/errors.ts";
import type { RetentionPolicy, RetentionRange, RetentionStore } from "../../ports/finishedRows.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";

export interface RetentionOptions {
  readonly store: RetentionStore;
  readonly policy: RetentionPolicy;
  /** Most rows of one delete statement (`retention.<table>.batchSize`). */
  readonly batchSize: number;
  /** Aborts when the process stops: a pause ends at once, and no batch follows the running one. */
  readonly stopping: AbortSignal;
  /** Waits this many ms; rejects when the signal aborts first. */
  readonly wait: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly clock: Clock;
  readonly metrics: Pick<Metrics, "cleanupDeleted" | "cleanupDuration" | "cleanupLastRun">;
  readonly log: Log;
}

interface Sweep {
  readonly startedAt: number;
  left: readonly RetentionRange[];
  deleted: number;
  /** Rows that the database refused to delete, and the error of the first. */
  refused: number;
  refusal?: string | undefined;
}

/** Deletes finished rows of one table by its policy, in batches with pauses between them (spec, "retention"). */
export class Retention {
  readonly #options: RetentionOptions;
  #sweep: Sweep | undefined;

  constructor(options: RetentionOptions) {
    this.#options = options;
  }

  /**
   * Deletes one batch, and plans a sweep before it if none is running. After a failed batch the sweep continues there.
   *
   * @throws StoreError of the plan or the batch, or of a row if the sweep could delete none
   */
  async pass(): Promise<"again" | "idle"> {
    this.#sweep ??= await this.#begin();
    const sweep = this.#sweep;
    const result = await this.#step(sweep);
    if (result === "idle") this.#sweep = undefined;
    if (sweep.deleted + sweep.refused > 0 && (result === "idle" || this.#options.stopping.aborted)) this.#report(sweep);
    if (result === "idle") failWhereAllWereRefused(sweep);
    return result;
  }

  /**
   * Sweeps the table once to the end, or until the process stops, and logs what was deleted, even if nothing.
   *
   * @throws StoreError when the plan or a batch failed, or every row was refused; earlier batches stay deleted
   */
  async runOnce(): Promise<void> {
    const sweep = await this.#begin();
    try {
      while (!this.#options.stopping.aborted && (await this.#step(sweep)) === "again");
    } finally {
      this.#report(sweep);
    }
    failWhereAllWereRefused(sweep);
  }

  async #begin(): Promise<Sweep> {
    const { store, policy, clock } = this.#options;
    const startedAt = clock.monotonic();
    return { startedAt, left: await store.plan(policy), deleted: 0, refused: 0 };
  }

  async #step(sweep: Sweep): Promise<"again" | "idle"> {
    const { store, policy, batchSize, clock, metrics, log } = this.#options;
    const [range, ...others] = sweep.left;
    if (range !== undefined) {
      const startedAt = clock.monotonic();
      const { deleted, rest, refused, refusal } = await store.deleteBatch(range, batchSize);
      if (refused > 0 && sweep.refused === 0)
        log.warn({ table: policy.table, reason: refusal }, "the database refuses to delete some rows: skipping them");
      sweep.refusal ??= refusal;
      sweep.refused += refused;
      sweep.left = rest === null ? others : [rest, ...others];
      sweep.deleted += deleted;
      metrics.cleanupDeleted(policy.table, deleted);
      if (sweep.left.length > 0) {
        await this.#pause(clock.monotonic() - startedAt);
        return "again";
      }
    }
    metrics.cleanupDuration(policy.table, (clock.monotonic() - sweep.startedAt) / 1000);
    metrics.cleanupLastRun(policy.table, clock.now() / 1000);
    return "idle";
  }

  async #pause(batchMs: number): Promise<void> {
    const { wait, stopping } = this.#options;
    const ms = Math.min(MAX_PAUSE_MS, Math.max(MIN_PAUSE_MS, Math.round(batchMs * PAUSE_PER_BATCH_TIME)));
    try {
      await wait(ms, stopping);
    } catch (error) {
      if (!stopping.aborted) throw error;
    }
  }

  #report({ left, deleted, refused, startedAt }: Sweep): void {
    const { policy, clock, log } = this.#options;
    const durationMs = Math.round(clock.monotonic() - startedAt);
    const fields = {
      table: policy.table,
      policy: policy.kind,
      deleted,
      ...(refused > 0 ? { refused } : {}),
      durationMs,
    };
    log.info(fields, left.length === 0 ? "retention" : "retention interrupted");
  }
}

function failWhereAllWereRefused({ deleted, refusal }: Sweep): void {
  if (deleted === 0 && refusal !== undefined) throw new StoreError("refused", refusal);
}

/** Idle time after a batch, which uses the whole database: three quarters remain for poller and relay. */
const PAUSE_PER_BATCH_TIME = 3;
/** After a short batch too, others get the pool's connection first. */
const MIN_PAUSE_MS = 10;
/** A batch that waited long (such as for its connection) must not delay the sweep for ever. */
const MAX_PAUSE_MS = 1000;

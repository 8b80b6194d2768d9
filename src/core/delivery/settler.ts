import { errorText } from "../../model/errors.ts";
import type { Outcome } from "../../model/rows.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { OutboxStore } from "../../ports/store.ts";
import { Backoff } from "../../time/backoff.ts";
import type { Clock, Random } from "../../time/clock.ts";
import type { QueuedRow } from "./keyQueues.ts";

/**
 * The result of writing an outcome:
 *
 * - `written`: committed, by this statement or by an earlier one whose answer was lost;
 * - `lost`: fenced off, since the row is no longer under this claim;
 * - `unknown`: written or lost; an earlier statement got no answer, and the lease expired before the next one;
 * - `refused`: the database accepts no outcome of this row. The claim stays until its lease ends;
 * - `abandoned`: not written before the process had to end.
 */
export type SettleResult =
  | { readonly kind: "written" | "lost" | "unknown" | "abandoned" }
  | { readonly kind: "refused"; readonly reason: string };

interface SettlerOptions {
  readonly store: Pick<OutboxStore, "settle">;
  readonly clock: Clock;
  readonly random: Random;
  readonly metrics: Metrics;
  readonly log: Log;
  /** Waits between retries and between small batches, in ms. */
  readonly wait: (ms: number) => Promise<void>;
}

/**
 * Settles in batches: outcomes accumulate while a statement runs (and equally long after a small one), so batches grow
 * with load and a lone outcome is not delayed. Failed batches are retried: the fence makes a late outcome harmless,
 * while a lost one would mean a second delivery.
 */
export class Settler {
  readonly #options: SettlerOptions;
  readonly #backoff: Backoff;
  #waiting: Unsettled[] = [];
  #running: Promise<void> | undefined;
  #givenUp = false;
  /** Until then a small batch waits for more; monotonic ms. */
  #restsUntil = Number.NEGATIVE_INFINITY;

  constructor(options: SettlerOptions) {
    this.#options = options;
    this.#backoff = new Backoff(options.random, RETRY_WAITS);
  }

  /**
   * Writes an outcome.
   *
   * @param heldUntil monotonic ms until which no other replica may take the row
   * @returns once it is committed, or known never to be; never rejects
   */
  settle(outcome: Outcome, heldUntil: number): Promise<SettleResult> {
    return new Promise((resolve) => {
      this.#waiting.push({ outcome, heldUntil, resolve, mayBeWritten: false });
      // Started from a microtask, so that the outcomes of one turn of the event loop share a statement.
      this.#running ??= Promise.resolve().then(() => this.#run());
    });
  }

  /** Resolves when every outcome so far has its result. */
  async flushed(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
  }

  /** Stops retrying: another replica reclaims the rest when its lease ends, and delivers it again. */
  giveUp(): void {
    this.#givenUp = true;
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      await this.#rest();
      const batch = this.#waiting.splice(0, MAX_BATCH);
      try {
        await this.#write(batch);
        this.#backoff.reset();
      } catch (error) {
        for (const each of batch) each.mayBeWritten = true;
        this.#waiting = [...batch, ...this.#waiting];
        await this.#failed(errorText(error));
      }
    }
    this.#running = undefined;
  }

  async #write(batch: readonly Unsettled[]): Promise<void> {
    const { store, clock } = this.#options;
    const startedAt = clock.monotonic();
    const { closed, refused } = await store.settle(batch.map(({ outcome }) => outcome));
    const endedAt = clock.monotonic();
    this.#restsUntil = endedAt + Math.min(endedAt - startedAt, MAX_REST_MS);
    for (const { outcome, heldUntil, resolve, mayBeWritten } of batch) {
      const reason = refused.get(outcome.id);
      if (reason !== undefined) resolve({ kind: "refused", reason });
      else if (closed.has(outcome.id)) resolve({ kind: "written" });
      else if (!mayBeWritten) resolve({ kind: "lost" });
      // While the lease holds, only an earlier statement can have closed the row.
      else resolve({ kind: endedAt < heldUntil ? "written" : "unknown" });
    }
  }

  async #failed(reason: string): Promise<void> {
    const { metrics, log, wait } = this.#options;
    metrics.outboxProcessError();
    log.warn({ reason }, "settling outcomes failed, retrying");
    if (!this.#givenUp) return await wait(this.#backoff.next());
    log.warn({ rows: this.#waiting.length, reason }, "gave up settling; leases will expire");
    for (const { resolve } of this.#waiting.splice(0)) resolve({ kind: "abandoned" });
  }

  async #rest(): Promise<void> {
    const ms = this.#restsUntil - this.#options.clock.monotonic();
    // A timer takes at least a millisecond.
    if (ms >= 1 && this.#waiting.length < LARGE_BATCH && !this.#givenUp) await this.#options.wait(ms);
  }
}

interface Unsettled {
  readonly outcome: Outcome;
  readonly heldUntil: number;
  readonly resolve: (result: SettleResult) => void;
  /** A failed statement included it, and may have been committed. */
  mayBeWritten: boolean;
}

const MAX_BATCH = 1000;
/** A statement for twenty rows costs a third of one for a hundred; beyond this size there is little more to gain. */
const LARGE_BATCH = 250;
const MAX_REST_MS = 50;
const RETRY_WAITS = { firstMs: 50, longestMs: 2000 };

/**
 * Rows going back to the database unfinished. Until that is written they count as held by this process, so a claim may
 * return later rows of their keys, which must be released too.
 */
export class Releases {
  /** Per key, its rows that go back. */
  readonly #keys = new Map<string, number>();
  /** Per running claim, the keys of rows that have been going back at any time since it began. */
  readonly #keysOfClaims = new Set<Set<string>>();
  /**
   * Rows released as soon as a claim returned them. No claim runs until these rows are pending again: it would return
   * later rows of the same keys, which must be released too, and two claims could alternate for ever without a
   * delivery.
   */
  readonly #onArrival = new Set<QueuedRow>();
  /** Rows released because too many waited, with the destination at which they did. */
  readonly #overflow = new Map<QueuedRow, string>();
  /**
   * Rows whose outcome the database refuses. Each still counts as held by this process while other rows of its claim
   * are open, and would hold up no later row: its key stays here until the claim is closed.
   */
  readonly #refused = new Set<QueuedRow>();

  /**
   * A claim begins.
   *
   * @returns the keys whose rows it must not deliver, growing until `claimEnded` is called with them
   */
  claimBegan(): ReadonlySet<string> {
    const keys = new Set(this.#keys.keys());
    this.#keysOfClaims.add(keys);
    return keys;
  }

  claimEnded(keys: ReadonlySet<string>): void {
    this.#keysOfClaims.delete(keys as Set<string>);
  }

  /** A row goes back; the row of each call is passed to `settled` later. */
  add({ row: { key } }: QueuedRow): void {
    if (key === null) return;
    this.#keys.set(key, (this.#keys.get(key) ?? 0) + 1);
    for (const keys of this.#keysOfClaims) keys.add(key);
  }

  addOnArrival(entry: QueuedRow): void {
    this.#onArrival.add(entry);
    this.add(entry);
  }

  addOverflow(entry: QueuedRow, destination: string): void {
    this.#overflow.set(entry, destination);
    this.add(entry);
  }

  /** Whether claims must wait. */
  get holdUpClaims(): boolean {
    return this.#onArrival.size > 0;
  }

  /** Whether rows of an overfull destination go back: a claim for it would miss them. */
  overflowAt(destination: string): boolean {
    return [...this.#overflow.values()].includes(destination);
  }

  /**
   * A row is settled, and closed in its claim.
   *
   * @param goesBack whether it was passed to one of the `add` methods
   * @param isRefused whether the database refuses its outcome
   * @returns true when claims were held up for its sake and may be made now
   */
  settled(entry: QueuedRow, goesBack: boolean, isRefused: boolean): boolean {
    if (goesBack && isRefused) this.#refused.add(entry);
    else if (goesBack) this.#isBack(entry);
    for (const refused of this.#refused) {
      if (refused.claim.open.size > 0) continue;
      this.#refused.delete(refused);
      this.#isBack(refused);
    }
    const wasLastOverflow = this.#overflow.delete(entry) && this.#overflow.size === 0;
    return this.#onArrival.delete(entry) || wasLastOverflow;
  }

  #isBack({ row: { key } }: QueuedRow): void {
    if (key === null) return;
    const left = (this.#keys.get(key) ?? 0) - 1;
    if (left > 0) this.#keys.set(key, left);
    else this.#keys.delete(key);
  }
}

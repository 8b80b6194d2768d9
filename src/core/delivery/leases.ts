import { setMaxListeners } from "node:events";
import { ClaimLostError, errorText } from "../../model/errors.ts";
import type { ClaimedRow, ClaimToken, MessageId } from "../../model/rows.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Lease, OutboxStore } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";

/** The rows of one claim and how long this process may act on them. */
export interface ClaimedBatch {
  readonly token: ClaimToken;
  /** Monotonic ms at which the lease ends for certain, counted from before the claim or renewal was sent. */
  deadline: number;
  /** Monotonic ms beyond which no renewal can move the deadline. */
  readonly ceiling: number;
  /** Rows that are not settled yet. */
  readonly open: Set<MessageId>;
  /** Rows another process has taken over, as the last renewal showed. */
  readonly lost: Set<MessageId>;
  /** Aborts the deliveries of this claim when its lease has run out. */
  readonly cutoff: AbortController;
}

/**
 * Keeps the leases of this process' claims alive: one renewal for all of them every third of the lease. Deadlines are kept on the
 * monotonic clock, so neither a clock that jumps nor a process that was stopped for a minute can act on a claim that is over.
 */
export class Leases {
  readonly #store: OutboxStore;
  readonly #lease: Lease;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #batches = new Set<ClaimedBatch>();
  #renewDueAt: number;
  #renewing: Promise<void> | undefined;

  constructor(store: OutboxStore, lease: Lease, clock: Clock, log: Log) {
    this.#store = store;
    this.#lease = lease;
    this.#clock = clock;
    this.#log = log;
    this.#renewDueAt = clock.monotonic() + lease.leaseMs / 3;
  }

  /** @param claimedAt monotonic ms at which the claim was sent */
  open(token: ClaimToken, rows: readonly ClaimedRow[], claimedAt: number): ClaimedBatch {
    const { leaseMs, claimTimeoutMs } = this.#lease;
    const cutoff = new AbortController();
    // Every delivery of the claim may listen to it.
    setMaxListeners(0, cutoff.signal);
    const batch: ClaimedBatch = {
      token,
      deadline: claimedAt + Math.min(leaseMs, claimTimeoutMs),
      ceiling: claimedAt + claimTimeoutMs,
      open: new Set(rows.map((row) => row.id)),
      lost: new Set(),
      cutoff,
    };
    this.#batches.add(batch);
    return batch;
  }

  /** The row is settled, or given up. */
  close(batch: ClaimedBatch, id: MessageId): void {
    batch.open.delete(id);
    if (batch.open.size === 0) this.#batches.delete(batch);
  }

  /**
   * True when a delivery may begin: the row is still ours, and the lease is not about to end. A lease that has less than a sixth
   * left has missed its renewals, or has reached the ceiling of its claim: what would begin now might not end in time.
   */
  mayBegin(batch: ClaimedBatch, id: MessageId): boolean {
    return batch.deadline - this.#clock.monotonic() > this.#lease.leaseMs / 6 && !batch.lost.has(id);
  }

  /** Tokens of the claims that still have open rows. */
  tokens(): readonly ClaimToken[] {
    return [...this.#batches].map((batch) => batch.token);
  }

  /** Ends every delivery that still runs, with `reason` as the abort reason. */
  abortAll(reason: Error): void {
    for (const batch of this.#batches) batch.cutoff.abort(reason);
  }

  /** Renews when due. Call it about every second. */
  async tick(): Promise<void> {
    if (this.#renewing === undefined && this.#batches.size > 0 && this.#clock.monotonic() >= this.#renewDueAt) {
      this.#renewing = this.#renew().finally(() => {
        this.#renewing = undefined;
      });
    }
    await this.#renewing;
  }

  async #renew(): Promise<void> {
    const batches = [...this.#batches];
    const sentAt = this.#clock.monotonic();
    try {
      const tokens = batches.map((batch) => batch.token);
      const held = await this.#store.renew(tokens, this.#lease);
      this.#renewDueAt = sentAt + this.#lease.leaseMs / 3;
      for (const batch of batches) {
        // A row that was settled while the renewal ran is no longer open, so only a row that was taken over is left here.
        for (const id of batch.open) if (!held.has(id)) batch.lost.add(id);
        // The database may refuse to renew a claim: its lease ends when it was to end.
        if ([...batch.open].some((id) => held.has(id)))
          batch.deadline = Math.min(sentAt + this.#lease.leaseMs, batch.ceiling);
      }
    } catch (error) {
      // Tried again at the next tick; the deadline decides when it is too late.
      this.#log.warn({ reason: errorText(error), claims: batches.length }, "leases not renewed");
    }
  }

  /** Cuts off deliveries whose lease has run out. Call it about every second, whatever becomes of a renewal. */
  cutOff(): void {
    const now = this.#clock.monotonic();
    for (const batch of this.#batches) {
      if (now < batch.deadline || batch.cutoff.signal.aborted) continue;
      this.#log.warn(
        { claimToken: batch.token, rows: batch.open.size },
        "lease ran out: deliveries of this claim are cut off",
      );
      batch.cutoff.abort(new ClaimLostError("the lease of this claim ran out"));
    }
  }
}

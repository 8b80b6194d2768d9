import { type Linked, LinkedList } from "../../model/collections.ts";
import { ClaimLostError, errorText } from "../../model/errors.ts";
import type { ClaimedRow, ClaimToken, MessageId, Outcome } from "../../model/rows.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { ClaimQueues, ClaimRequest, ClaimResult, Lease, OutboxStore, SettledRows } from "../../ports/store.ts";
import type { Clock, Random } from "../../time/clock.ts";
import { Backoff, sharedController } from "../../time/wait.ts";

export interface HeldClaim extends Linked {
  readonly token: ClaimToken;
  /** Monotonic ms, before the claim was sent. */
  readonly claimedAt: number;
  /** Monotonic ms of the earliest possible end of the lease, counted from before the claim or renewal was sent. */
  deadline: number;
  /** Monotonic ms that no renewal can exceed. */
  readonly ceiling: number;
  readonly open: Set<MessageId>;
  /** Rows taken over by another process, according to the last renewal. */
  readonly lost: Set<MessageId>;
  /** An outcome could not be written: new claims leave out rows behind its rows, which would come and go for ever. */
  isStuck: boolean;
  /** Aborts the deliveries of this claim when its lease expires. */
  readonly cutoff: AbortController;
}

interface ClaimsOptions {
  readonly store: OutboxStore;
  readonly newToken: () => ClaimToken;
  /** Ceiling of a claim in ms, however often renewed (`outbox.claimTimeoutMs`). */
  readonly claimTimeoutMs: number;
  readonly clock: Clock;
  readonly random: Random;
  readonly metrics: Metrics;
  readonly log: Log;
  /** Waits between retries and between small batches of outcomes, in ms. */
  readonly wait: (ms: number) => Promise<void>;
}

/**
 * What became of an outcome. `closed`: it was written, or the claim was lost and it changes nothing. `refused`: the
 * database accepts no outcome of this row, whose claim stays until its lease ends. `abandoned`: it was not written before
 * the process had to end.
 */
type SettleResult = "closed" | "refused" | "abandoned";

/**
 * The claims of this process. One statement renews all of them every third of the lease. Deadlines use the monotonic
 * clock, so neither a clock that jumps nor a process suspended for a minute can act on an expired claim.
 *
 * Outcomes are written in batches: they accumulate while a statement runs (and equally long after a small one), so
 * batches grow with load and a lone outcome is not delayed. Failed batches are retried: the fence makes a late outcome
 * harmless, while a lost one would mean a second delivery.
 */
export class Claims {
  readonly #options: ClaimsOptions;
  readonly #lease: Lease;
  readonly #heldClaims = new LinkedList<HeldClaim>();
  readonly #msSinceJump: ReturnType<typeof clockJumps>;
  #renewDueAt: number;
  #renewing: Promise<void> | undefined;
  readonly #backoff: Backoff;
  #unsettled: Unsettled[] = [];
  #settling: Promise<void> | undefined;
  #givenUp = false;
  /** Until then a small batch of outcomes waits for more; monotonic ms. */
  #restsUntil = Number.NEGATIVE_INFINITY;

  constructor(options: ClaimsOptions) {
    const { claimTimeoutMs, clock, random } = options;
    this.#options = options;
    this.#lease = { leaseMs: Math.min(claimTimeoutMs, LEASE_MS), claimTimeoutMs };
    this.#renewDueAt = clock.monotonic() + this.#lease.leaseMs / 3;
    this.#msSinceJump = clockJumps(clock);
    this.#backoff = new Backoff(random, RETRY_WAITS);
  }

  /** Claims rows; each of them must be settled, or left to its lease. @throws StoreError */
  async make(limit: number, queues: ClaimQueues): Promise<{ result: ClaimResult; claim: HeldClaim }> {
    const { store, clock, metrics } = this.#options;
    const { request, claimedAt } = this.#request(limit);
    const result = await store.claim({ ...request, queues }).catch((error: unknown) => {
      metrics.outboxProcessError();
      throw error;
    });
    if (result.rows.length > 0) {
      metrics.claimRows("poller", result.rows.length);
      metrics.claimDuration("poller", (clock.monotonic() - claimedAt) / 1000);
    }
    this.#logRefused(result.refused ?? []);
    return { result, claim: this.#hold(request.token, result.rows, claimedAt) };
  }

  /** A claim for a receipt to make: its request, and what to call with the rows that the receipt has claimed. */
  ofReceipt(limit: number): { request: ClaimRequest; made: (rows: readonly ClaimedRow[]) => HeldClaim } {
    const { request, claimedAt } = this.#request(limit);
    const made = (rows: readonly ClaimedRow[]): HeldClaim => {
      this.#options.metrics.claimRows("poller", rows.length);
      return this.#hold(request.token, rows, claimedAt);
    };
    return { request, made };
  }

  #request(limit: number): { readonly request: ClaimRequest; readonly claimedAt: number } {
    const { newToken, clock } = this.#options;
    const heldTokens = [...this.#heldClaims].filter(({ isStuck }) => !isStuck).map((claim) => claim.token);
    const request = { limit, maxBytes: MAX_CLAIM_BYTES, token: newToken(), heldTokens, ...this.#lease };
    return { request, claimedAt: clock.monotonic() };
  }

  /**
   * Whether a delivery may begin: the row is still ours, and more than a sixth of the lease is left. With less, it
   * missed its renewals or reached its ceiling, and the delivery might not end in time.
   */
  mayBegin(claim: HeldClaim, id: MessageId): boolean {
    return claim.deadline - this.#options.clock.monotonic() > this.#lease.leaseMs / 6 && !claim.lost.has(id);
  }

  /** Writes the outcome of a row. @param onSettled called when it is committed, or never will be; must not throw */
  settle(claim: HeldClaim, outcome: Outcome, onSettled: (result: SettleResult) => void): void {
    this.#unsettled.push({ claim, outcome, heldUntil: claim.deadline, onSettled, mayBeWritten: false });
    // Started from a microtask, so that the outcomes of one turn of the event loop share a statement.
    this.#settling ??= Promise.resolve().then(() => this.#settleAll());
  }

  /** Resolves when every outcome so far has its result, before the process ends: no claim is made any more. */
  async flushed(): Promise<void> {
    while (this.#settling !== undefined) await this.#settling;
  }

  /** Aborts every running delivery and retries no failed statement: another replica reclaims and delivers the rest. */
  giveUp(reason: Error): void {
    this.#givenUp = true;
    for (const claim of [...this.#heldClaims]) claim.cutoff.abort(reason);
  }

  /** Renews due leases. Call it about every second. Never rejects. */
  async renew(): Promise<void> {
    const isDue = this.#options.clock.monotonic() >= this.#renewDueAt;
    if (this.#renewing === undefined && this.#heldClaims.size > 0 && isDue) {
      this.#renewing = this.#renewAll().finally(() => {
        this.#renewing = undefined;
      });
    }
    await this.#renewing;
  }

  /** Makes rows of expired claims, of any process, pending again. @throws StoreError */
  async reclaim(): Promise<void> {
    const { store, claimTimeoutMs, metrics, log } = this.#options;
    // By then every lease that the jump has ended is renewed, or over for its holder too.
    if ((await this.#msSinceJump(() => store.clock())) < this.#lease.leaseMs) return;
    const rows = await store.reclaim(RECLAIM_LIMIT, claimTimeoutMs);
    if (rows === 0) return;
    metrics.outboxReclaimed(rows);
    log.warn({ rows }, "expired claims are pending again");
  }

  /** Cuts off deliveries of expired leases. Call it every second, even if a renewal hangs, until the poller stops. */
  cutOff(): void {
    const { clock, log } = this.#options;
    for (const claim of [...this.#heldClaims]) {
      if (clock.monotonic() < claim.deadline || claim.cutoff.signal.aborted) continue;
      log.warn({ claimToken: claim.token, rows: claim.open.size }, "lease expired: cutting off its deliveries");
      claim.cutoff.abort(new ClaimLostError("the lease of this claim expired"));
    }
  }

  #hold(token: ClaimToken, rows: readonly ClaimedRow[], claimedAt: number): HeldClaim {
    const { leaseMs, claimTimeoutMs } = this.#lease;
    const claim: HeldClaim = {
      token,
      claimedAt,
      deadline: claimedAt + leaseMs,
      ceiling: claimedAt + claimTimeoutMs,
      open: new Set(rows.map((row) => row.id)),
      lost: new Set(),
      isStuck: false,
      cutoff: sharedController(),
    };
    if (rows.length > 0) this.#heldClaims.add(claim);
    return claim;
  }

  async #renewAll(): Promise<void> {
    const { store, clock, log } = this.#options;
    const claims = [...this.#heldClaims];
    const sentAt = clock.monotonic();
    try {
      const tokens = claims.map((claim) => claim.token);
      const held = await store.renew(tokens, this.#lease);
      this.#renewDueAt = sentAt + this.#lease.leaseMs / 3;
      for (const claim of claims) {
        // Rows settled meanwhile are no longer open: what is missing here was taken over.
        for (const id of claim.open) if (!held.has(id)) claim.lost.add(id);
        // The database may refuse to renew a claim: then its deadline stays.
        const isRenewed = [...claim.open].some((id) => held.has(id));
        if (isRenewed) claim.deadline = Math.min(sentAt + this.#lease.leaseMs, claim.ceiling);
      }
    } catch (error) {
      // The next call retries; the deadline decides when it is too late.
      log.warn({ reason: errorText(error), claims: claims.length }, "renewing leases failed, retrying");
    }
  }

  #logRefused(refused: NonNullable<ClaimResult["refused"]>): void {
    const { metrics, log } = this.#options;
    for (const { id, reason } of refused.slice(0, REFUSED_NAMED)) {
      log.error({ id, reason }, "the database refuses the claim of this row: it stays pending and blocks its key");
    }
    const others = refused.length - REFUSED_NAMED;
    if (others > 0) log.error({ rows: others }, "the database refuses the claim of more rows");
    if (refused.length > 0) metrics.outboxRowRefused(refused.length);
  }

  async #settleAll(): Promise<void> {
    while (this.#unsettled.length > 0) {
      await this.#rest();
      const batch = this.#unsettled.splice(0, MAX_BATCH);
      let refused: SettledRows["refused"];
      try {
        refused = await this.#write(batch);
      } catch (error) {
        for (const each of batch) each.mayBeWritten = true;
        this.#unsettled = [...batch, ...this.#unsettled];
        await this.#writeFailed(errorText(error));
        continue;
      }
      this.#backoff.reset();
      for (const { outcome, onSettled } of batch) onSettled(refused.has(outcome.id) ? "refused" : "closed");
    }
    this.#settling = undefined;
  }

  async #rest(): Promise<void> {
    const ms = this.#restsUntil - this.#options.clock.monotonic();
    // A timer takes at least a millisecond.
    if (ms >= 1 && this.#unsettled.length < LARGE_BATCH && !this.#givenUp) await this.#options.wait(ms);
  }

  /** @returns the rows whose outcome the database refuses, with its reasons */
  async #write(batch: readonly Unsettled[]): Promise<SettledRows["refused"]> {
    const { store, clock } = this.#options;
    const startedAt = clock.monotonic();
    const outcomes = batch.map(({ outcome }) => outcome);
    const { closed, refused } = await store.settle(outcomes);
    const endedAt = clock.monotonic();
    this.#restsUntil = endedAt + Math.min(endedAt - startedAt, MAX_REST_MS);
    for (const { claim, outcome, heldUntil, mayBeWritten } of batch) {
      const reason = refused.get(outcome.id);
      if (reason !== undefined) {
        claim.isStuck = true;
        this.#logRefusedOutcome(outcome, reason);
      } else if (!closed.has(outcome.id)) {
        // While the lease holds, only an earlier statement can have closed the row.
        if (!mayBeWritten) this.#logLost(outcome, RECLAIMED);
        else if (endedAt >= heldUntil) this.#logLost(outcome, WRITTEN_OR_EXPIRED);
      }
      claim.open.delete(outcome.id);
      if (claim.open.size === 0) this.#heldClaims.delete(claim);
    }
    return refused;
  }

  async #writeFailed(reason: string): Promise<void> {
    const { metrics, log, wait } = this.#options;
    metrics.outboxProcessError();
    log.warn({ reason }, "settling outcomes failed, retrying");
    if (!this.#givenUp) return await wait(this.#backoff.next());
    log.warn(
      { rows: this.#unsettled.length, reason },
      "outcomes were not written before the stop: the rows become due again when their leases expire",
    );
    for (const { onSettled } of this.#unsettled.splice(0)) onSettled("abandoned");
  }

  #logRefusedOutcome({ id, kind }: Outcome, reason: string): void {
    const { metrics, log } = this.#options;
    metrics.outboxRowRefused(1);
    log.error({ id, outcome: kind, reason }, REFUSED);
  }

  #logLost({ id, kind }: Outcome, message: string): void {
    this.#options.metrics.claimsLost("poller", 1);
    this.#options.log.warn({ id, outcome: kind }, message);
  }
}

interface Unsettled {
  readonly claim: HeldClaim;
  readonly outcome: Outcome;
  /** No other replica may take the row before; monotonic ms. */
  readonly heldUntil: number;
  readonly onSettled: (result: SettleResult) => void;
  /** A failed statement included it, and may have been committed. */
  mayBeWritten: boolean;
}

/**
 * Notices that the database's clock was set ahead, which ends the leases of all claims at once. Their holders continue
 * until the leases have ended by a clock that does not jump: rows taken from them before would be delivered twice, and
 * out of order. A failover to a server whose clock is ahead is the same, and so is a pause of this virtual machine.
 *
 * @returns to be called about every second with what reads the database's clock, in ms: gives the ms since it jumped
 *   last, infinity if it never did
 */
export function clockJumps(clock: Pick<Clock, "monotonic">): (read: () => Promise<number>) => Promise<number> {
  /** The database's clock less ours, at most, and when that was read. */
  let last: { readonly ahead: number; readonly at: number } | undefined;
  let jumpedAt = Number.NEGATIVE_INFINITY;
  return async (read) => {
    const before = clock.monotonic();
    const now = await read();
    const after = clock.monotonic();
    // The server read it between the two: a slow answer does not look like a jump.
    if (last !== undefined && after - last.at < REMEMBERED_MS && now - after > last.ahead + JUMP_MS) jumpedAt = after;
    last = { ahead: now - before, at: after };
    return after - jumpedAt;
  };
}

const RECLAIMED = "claim lost: the row was reclaimed before its outcome was written";
const WRITTEN_OR_EXPIRED = "claim lost: an earlier statement without an answer wrote the outcome, or the lease expired";
const REFUSED =
  "the outcome of this row cannot be stored: it stays claimed until its lease expires, then is delivered again";
const MAX_BATCH = 1000;
/** A statement for twenty rows costs a third of one for a hundred; beyond this size there is little more to gain. */
const LARGE_BATCH = 250;
const MAX_REST_MS = 50;
const RETRY_WAITS = { firstMs: 50, longestMs: 2000 };
/** Bounds the memory for claimed payloads: only a few claims wait at a time. */
export const MAX_CLAIM_BYTES = 16 * 1024 * 1024;
/** The rows of a killed replica are pending again within this time; a live one renews at a third of it. */
const LEASE_MS = 30_000;
const RECLAIM_LIMIT = 1000;
/** Refused rows logged one by one; they mostly share one reason. */
const REFUSED_NAMED = 20;
/** A jump that a lease outlasts: it is renewed long before its end. */
const JUMP_MS = 1000;
/** Clocks drift apart: after longer than this, that may look like a jump. */
const REMEMBERED_MS = 60_000;

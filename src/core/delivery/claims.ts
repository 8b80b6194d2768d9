import { ClaimLostError, errorText } from "../../model/errors.ts";
import type { ClaimedRow, ClaimToken, MessageId } from "../../model/rows.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { ClaimResult, ClaimScope, Lease, OutboxStore } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";
import { sharedController } from "../../time/wait.ts";

/** A claim of this process: its open rows, and how long it may act on them. */
export interface HeldClaim {
  readonly token: ClaimToken;
  /** Monotonic ms, before the claim was sent. */
  readonly claimedAt: number;
  /** Monotonic ms of the earliest possible end of the lease, counted from before the claim or renewal was sent. */
  deadline: number;
  /** Monotonic ms that no renewal can exceed. */
  readonly ceiling: number;
  /** Rows not settled yet. */
  readonly open: Set<MessageId>;
  /** Rows taken over by another process, according to the last renewal. */
  readonly lost: Set<MessageId>;
  /** Aborts the deliveries of this claim when its lease expires. */
  readonly cutoff: AbortController;
}

interface ClaimsOptions {
  readonly store: OutboxStore;
  readonly newToken: () => ClaimToken;
  /** Ceiling of a claim in ms, however often renewed (`outbox.claimTimeoutMs`). */
  readonly claimTimeoutMs: number;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Log;
}

/**
 * The claims of this process. One statement renews all of them every third of the lease. Deadlines use the monotonic
 * clock, so neither a clock that jumps nor a process suspended for a minute can act on an expired claim.
 */
export class Claims {
  readonly #options: ClaimsOptions;
  readonly #lease: Lease;
  readonly #held = new Set<HeldClaim>();
  #renewDueAt: number;
  #renewing: Promise<void> | undefined;

  constructor(options: ClaimsOptions) {
    const { claimTimeoutMs, clock } = options;
    this.#options = options;
    this.#lease = { leaseMs: Math.min(claimTimeoutMs, LEASE_MS), claimTimeoutMs };
    this.#renewDueAt = clock.monotonic() + this.#lease.leaseMs / 3;
  }

  /**
   * Claims rows; each of them must be closed.
   *
   * @param limit most rows
   * @param scope which rows to choose from; undefined for all
   * @throws StoreError
   */
  async make(limit: number, scope: ClaimScope | undefined): Promise<{ result: ClaimResult; claim: HeldClaim }> {
    const { store, newToken, clock, metrics } = this.#options;
    const token = newToken();
    const claimedAt = clock.monotonic();
    const heldTokens = [...this.#held].map((claim) => claim.token);
    const request = { limit, maxBytes: MAX_CLAIM_BYTES, token, heldTokens, ...this.#lease };
    const result = await store.claim(scope === undefined ? request : { ...request, scope }).catch((error: unknown) => {
      metrics.outboxProcessError();
      throw error;
    });
    if (result.rows.length > 0) {
      metrics.claimRows("poller", result.rows.length);
      metrics.claimDuration("poller", (clock.monotonic() - claimedAt) / 1000);
    }
    this.#logRefused(result.refused ?? []);
    return { result, claim: this.#hold(token, result.rows, claimedAt) };
  }

  /** The row is settled, or left to its lease. */
  close(claim: HeldClaim, id: MessageId): void {
    claim.open.delete(id);
    if (claim.open.size === 0) this.#held.delete(claim);
  }

  /**
   * Whether a delivery may begin: the row is still ours, and more than a sixth of the lease is left. With less, it
   * missed its renewals or reached its ceiling, and the delivery might not end in time.
   */
  mayBegin(claim: HeldClaim, id: MessageId): boolean {
    return claim.deadline - this.#options.clock.monotonic() > this.#lease.leaseMs / 6 && !claim.lost.has(id);
  }

  /** Ends every delivery that still runs, with `reason` as the abort reason. */
  abortAll(reason: Error): void {
    for (const claim of this.#held) claim.cutoff.abort(reason);
  }

  /** Renews due leases. Call it about every second. Never rejects. */
  async renew(): Promise<void> {
    const isDue = this.#options.clock.monotonic() >= this.#renewDueAt;
    if (this.#renewing === undefined && this.#held.size > 0 && isDue) {
      this.#renewing = this.#renewAll().finally(() => {
        this.#renewing = undefined;
      });
    }
    await this.#renewing;
  }

  /** Makes rows of expired claims, of any process, pending again. @throws StoreError */
  async reclaim(): Promise<void> {
    const { store, claimTimeoutMs, metrics, log } = this.#options;
    const rows = await store.reclaim(RECLAIM_LIMIT, claimTimeoutMs);
    if (rows === 0) return;
    metrics.outboxReclaimed(rows);
    log.warn({ rows }, "expired claims are pending again");
  }

  /** Cuts off deliveries whose lease has expired. Call it about every second, even while a renewal hangs. */
  cutOff(): void {
    const { clock, log } = this.#options;
    for (const claim of this.#held) {
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
      deadline: claimedAt + Math.min(leaseMs, claimTimeoutMs),
      ceiling: claimedAt + claimTimeoutMs,
      open: new Set(rows.map((row) => row.id)),
      lost: new Set(),
      cutoff: sharedController(),
    };
    if (rows.length > 0) this.#held.add(claim);
    return claim;
  }

  async #renewAll(): Promise<void> {
    const { store, clock, log } = this.#options;
    const claims = [...this.#held];
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
}

/** Bounds the memory for claimed payloads: only a few claims wait at a time. */
export const MAX_CLAIM_BYTES = 16 * 1024 * 1024;
/** The rows of a killed replica are pending again within this time; a live one renews at a third of it. */
const LEASE_MS = 30_000;
const RECLAIM_LIMIT = 1000;
/** Refused rows logged one by one; they mostly share one reason. */
const REFUSED_NAMED = 20;

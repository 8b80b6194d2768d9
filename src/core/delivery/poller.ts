import { StoppingError } from "../../model/errors.ts";
import type { ClaimedRow, ClaimToken, Outcome } from "../../model/rows.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import {
  type ClaimResult,
  type ClaimScope,
  NO_DESTINATION,
  type OutboxStore,
  type ReceiptClaim,
} from "../../ports/store.ts";
import type { Clock, Random } from "../../time/clock.ts";
import { NOT_ASKED, type Verdict } from "../destinations/breaker.ts";
import type { DestinationGates } from "../destinations/gates.ts";
import { ClaimScopes, type FurtherClaim } from "./claimScopes.ts";
import { Claims, type HeldClaim, MAX_CLAIM_BYTES } from "./claims.ts";
import type { Delivery } from "./deliver.ts";
import { FairShare } from "./fairShare.ts";
import { type HeldRow, KeyQueues, type QueuedRow, Releases } from "./keyQueues.ts";

export interface PollerOptions {
  readonly store: OutboxStore;
  readonly delivery: Delivery;
  readonly newToken: () => ClaimToken;
  /** Called when a claim that was held up may be made: time for the next pass. */
  readonly onMayClaim: () => void;
  readonly destinations: readonly string[];
  readonly gates: DestinationGates;
  /** Most rows of one claim (`outbox.batchSize`). */
  readonly batchSize: number;
  /** Most rows in delivery at a time (`outbox.concurrency`). */
  readonly concurrency: number;
  /** Longest wait between passes while a retry falls due, in ms (`outbox.pollIntervalMs`). */
  readonly pollIntervalMs: number;
  /** Ceiling of a claim in ms, however often renewed (`outbox.claimTimeoutMs`). */
  readonly claimTimeoutMs: number;
  readonly clock: Clock;
  readonly random: Random;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly wait: (ms: number) => Promise<void>;
}

/**
 * Claims outbox rows, delivers them and settles their outcomes: the rows of a key in order, different keys in parallel
 * up to `concurrency`. Claims, deliveries and settling overlap. Destinations share slots and claims, so that one that
 * fails or hangs does not hold up the others.
 */
export class Poller {
  readonly #options: PollerOptions;
  readonly #claims: Claims;
  readonly #queues = new KeyQueues();
  readonly #share: FairShare;
  readonly #releases = new Releases();
  readonly #scopes: ClaimScopes;
  #passing: Promise<unknown> = Promise.resolve();
  readonly #furtherClaims = new Set<Promise<void>>();
  /** Running receipts that may claim, with the most rows of each. */
  #receipts: readonly { readonly limit: number; readonly ended: Promise<unknown> }[] = [];
  /** No due row was left when a usual claim was last made, or rows of a receipt were left to one. */
  #isCaughtUp = false;
  /** Why a further claim failed: the next pass fails with it. */
  #furtherError: unknown;
  /** The usual claim is being repeated alone: no further claims begin. */
  #claimsAlone = false;
  /** The last usual claim found only rows behind those of further claims: the next one goes first. */
  #usualFirst = false;
  #inDelivery = 0;
  #stopping = false;
  #cutOff = false;
  /** The last pass ended early because claims were held up. */
  #isHeldUp = false;
  /** When a claim that has not read all of its scope goes on; monotonic ms. */
  #claimGoesOnAt = Number.POSITIVE_INFINITY;
  /** Until when a row that this process failed to deliver waits for its retry; monotonic ms. */
  #retriesUntil = Number.NEGATIVE_INFINITY;
  #onDeliveriesEnded: (() => void)[] = [];
  #claimed = 0;
  /** Since when claims have been held up, or rows have waited while every slot is in use; monotonic ms. */
  #strainedSince = Number.POSITIVE_INFINITY;

  constructor(options: PollerOptions) {
    const { concurrency, destinations, batchSize, gates, clock } = options;
    this.#options = options;
    this.#claims = new Claims(options);
    const wasUnhealthy = (destination: string) => gates.wasUnhealthy(destination);
    this.#share = new FairShare({ concurrency, isShared: destinations.length > 1, wasUnhealthy, clock });
    this.#scopes = new ClaimScopes({
      queues: this.#queues,
      share: this.#share,
      gates,
      releases: this.#releases,
      destinations,
      batchSize,
      claimBytes: MAX_CLAIM_BYTES,
      clock,
    });
    gates.listen({
      onChange: () => {
        this.#dispatch();
        options.onMayClaim();
      },
      onClose: (destination) => this.#share.forget(destination),
    });
  }

  /**
   * Makes all due claims.
   *
   * @returns `again` when more rows are due and the next claim may follow at once; `full` after one that leaves no room
   *   for the next: a wake tells when there is
   */
  pass(): Promise<"again" | "idle" | "full"> {
    const pass = this.#pass();
    this.#passing = pass;
    return pass;
  }

  /**
   * Lets a receipt claim what it stores, where that would be claimed next: no other row is due, there is room, and no
   * destination is unhealthy or held up by its limits. Other rows go the usual way.
   *
   * @param rows how many it stores
   * @param insert makes the receipt, and the claim where there is one
   * @returns what `insert` does
   */
  async receive<T>(rows: number, insert: (claim: ReceiptClaim | undefined) => Promise<T>): Promise<T> {
    const limit = Math.min(rows, this.#roomForReceipts());
    if (limit < rows) this.#isCaughtUp = false;
    if (limit <= 0) return await insert(undefined);
    const receipt = { limit, ended: this.#receive(limit, insert) };
    this.#receipts = [...this.#receipts, receipt];
    try {
      return await receipt.ended;
    } finally {
      this.#receipts = this.#receipts.filter((each) => each !== receipt);
    }
  }

  /** Rows were added to the outbox: empty claims are repeated soon. */
  wake(): void {
    this.#scopes.wake();
  }

  /** Longest wait for the next pass in ms: due retries, breakers and unfinished claims send no wake. */
  get nextPassWithinMs(): number {
    const { gates, clock, pollIntervalMs } = this.#options;
    const now = clock.monotonic();
    const forRetriesMs = now < this.#retriesUntil ? pollIntervalMs : Number.POSITIVE_INFINITY;
    const claimGoesOnMs = Math.max(0, this.#claimGoesOnAt - now);
    return Math.min(this.#scopes.nextClaimWithinMs, gates.changesWithinMs, claimGoesOnMs, forRetriesMs);
  }

  /** Rows claimed so far. */
  get claimed(): number {
    return this.#claimed;
  }

  /**
   * Whether other processes should claim, too: this one has had more rows than it delivers at once for a while, or a
   * destination is unhealthy, which may be so from here alone.
   */
  get needsHelp(): boolean {
    const { clock, destinations } = this.#options;
    return clock.monotonic() - this.#strainedSince > STRAINED_MS || destinations.some((each) => this.isSlow(each));
  }

  /** Whether deliveries to a destination hang, are slow or fail. */
  isSlow(destination: string): boolean {
    return this.#share.isUnhealthy(destination);
  }

  /** As {@link FairShare.answerEnded}. */
  answerEnded(destination: string, isWhole: boolean): void {
    this.#share.answerEnded(destination, isWhole);
  }

  /**
   * Renews leases and reclaims expired claims. Call it about every second, until `stop` has returned.
   *
   * @param reclaims false while another process sees to that
   */
  async tick(reclaims = true): Promise<void> {
    await this.#claims.renew();
    if (reclaims && !this.#stopping) await this.#claims.reclaim();
  }

  /**
   * Cuts off deliveries whose lease has run out. Call it about every second, until `stop` has returned, and apart from
   * `tick`, whose statements may hang as long as the database does.
   */
  cutOff(): void {
    this.#claims.cutOff();
  }

  /**
   * Stops claiming, releases what waits, and lets deliveries end. When `cutoff` aborts, those that remain are cut off
   * and keep their claims: their outcome is unknown, so they come back when the lease ends (spec, "Shutdown").
   */
  async stop(cutoff: AbortSignal): Promise<void> {
    this.#stopping = true;
    for (const entry of this.#queues.dropAll()) this.#release(entry);
    const cut = () => {
      this.#cutOff = true;
      this.#claims.giveUp(new StoppingError("the graceful stop timed out"));
    };
    if (cutoff.aborted) cut();
    else cutoff.addEventListener("abort", cut, { once: true });
    try {
      // A running claim ends first; its rows are released.
      await this.#passing.catch(() => {});
      await Promise.all(this.#furtherClaims);
      await Promise.allSettled(this.#receipts.map(({ ended }) => ended));
      if (this.#inDelivery > 0) await new Promise<void>((resolve) => this.#onDeliveriesEnded.push(resolve));
      await this.#claims.flushed();
    } finally {
      cutoff.removeEventListener("abort", cut);
    }
  }

  // Claiming

  async #pass(): Promise<"again" | "idle" | "full"> {
    this.#claimGoesOnAt = Number.POSITIVE_INFINITY;
    // No event signals the turn of an unhealthy destination.
    this.#dispatch();
    this.#releaseOverflow();
    const failure = this.#furtherError;
    this.#furtherError = undefined;
    if (failure !== undefined) throw failure;
    if (!this.#usualFirst) this.#claimFurther();
    this.#isHeldUp = !this.#mayClaim();
    if (this.#stopping || this.#isHeldUp) return "idle";
    const limit = this.#scopes.usualLimit;
    const { rows, more, goesOnInMs } = await this.#claimUsual(limit);
    if (goesOnInMs !== undefined) this.#claimGoesOnAt = this.#options.clock.monotonic() + goesOnInMs;
    this.#claimFurther();
    if (!more || rows.length === 0 || this.#stopping) return "idle";
    this.#isHeldUp = !this.#mayClaim();
    if (!this.#isHeldUp) return "again";
    // After a few rows, or some that go back, the next claim waits for others to share it.
    return this.#scopes.hasRoom() || 2 * rows.length < limit ? "idle" : "full";
  }

  /** Rows that a receipt may claim. More would wait here while other replicas may have free slots. */
  #roomForReceipts(): number {
    if (!this.#isCaughtUp || this.#stopping || !this.#mayClaim() || !this.#scopes.areFree()) return 0;
    const soon = this.#share.beginWithin(RECEIVED_WAIT_MS);
    let room = Math.min(soon, this.#options.batchSize) - this.#queues.waiting;
    for (const { limit } of this.#receipts) room -= limit;
    return room;
  }

  async #receive<T>(limit: number, insert: (claim: ReceiptClaim) => Promise<T>): Promise<T> {
    const releasedKeys = this.#releases.claimBegan();
    try {
      return await insert(this.#claims.ofReceipt(limit, (rows, claim) => this.#acceptAll(rows, claim, releasedKeys)));
    } finally {
      this.#releases.claimEnded(releasedKeys);
    }
  }

  #releaseOverflow(): void {
    for (const destination of this.#scopes.overfull()) {
      for (const entry of this.#queues.dropAt(destination)) this.#release(entry, destination);
    }
  }

  /** A running further claim holds back the rows behind its own: if only those are left, claims again alone. */
  async #claimUsual(limit: number): Promise<ClaimResult> {
    const { begun } = this.#share;
    const onRows = () => this.#scopes.usualEnded(this.#share.begun - begun);
    const result = await this.#claim(limit, this.#scopes.usual(), onRows);
    this.#isCaughtUp = !result.more;
    this.#usualFirst = false;
    if (!this.#hasMissedRows(result) || this.#stopping) return result;
    this.#claimsAlone = true;
    try {
      await Promise.all(this.#furtherClaims);
      if (this.#stopping || !this.#mayClaim()) return result;
      const alone = await this.#claim(limit, this.#scopes.usual());
      this.#usualFirst = this.#hasMissedRows(alone);
      return alone;
    } finally {
      this.#claimsAlone = false;
    }
  }

  #hasMissedRows({ rows, more }: ClaimResult): boolean {
    // What it leaves out may have changed while the claim ran.
    return this.#scopes.usual() !== undefined && more && rows.length === 0;
  }

  /** Begins the further claims that are due, in parallel: one that reads past a million rows takes long. */
  #claimFurther(): void {
    if (this.#stopping || this.#claimsAlone || this.#releases.holdUpClaims || this.#furtherError !== undefined) return;
    for (const further of this.#scopes.further()) {
      const claim = this.#makeFurther(further).then(() => {
        this.#furtherClaims.delete(claim);
        this.#claimFurther();
      });
      this.#furtherClaims.add(claim);
    }
  }

  async #makeFurther(further: FurtherClaim): Promise<void> {
    try {
      const { rows } = await this.#claim(further.limit, further.scope);
      this.#scopes.furtherEnded(further, rows.length);
    } catch (error) {
      this.#scopes.furtherEnded(further, undefined);
      this.#furtherError = error;
      this.#options.onMayClaim();
    }
  }

  /** @param onRows called before the rows are delivered */
  async #claim(limit: number, scope: ClaimScope | undefined, onRows = () => {}): Promise<ClaimResult> {
    const releasedKeys = this.#releases.claimBegan();
    try {
      const { result, claim } = await this.#claims.make(limit, scope);
      onRows();
      this.#acceptAll(result.rows, claim, releasedKeys);
      return result;
    } finally {
      this.#releases.claimEnded(releasedKeys);
    }
  }

  #acceptAll(rows: readonly ClaimedRow[], claim: HeldClaim, releasedKeys: ReadonlySet<string>): void {
    for (const row of rows) {
      const destination = this.#options.delivery.destinationOf(row) ?? NO_DESTINATION;
      this.#accept({ row, key: row.key, claim, destination }, releasedKeys);
    }
    this.#claimed += rows.length;
    if (rows.length > 0) this.#dispatch();
  }

  #accept(entry: QueuedRow, releasedKeys: ReadonlySet<string>): void {
    const { row, key, destination } = entry;
    this.#scopes.returned(destination);
    if (this.#stopping || this.#scopes.isClosed(destination) || (key !== null && releasedKeys.has(key))) {
      this.#releases.addOnArrival(entry);
      this.#settle(entry, releaseOf(row));
    } else {
      this.#queues.add(entry);
      this.#countQueued(entry, 1);
    }
  }

  #mayClaim(): boolean {
    return this.#scopes.hasRoom() && !this.#releases.holdUpClaims;
  }

  #claimIfHeldUp(): void {
    if (!this.#isHeldUp || !this.#mayClaim()) return;
    this.#isHeldUp = false;
    this.#options.onMayClaim();
  }

  // Delivering

  /** Begins every delivery that may begin. */
  #dispatch(): void {
    const { gates } = this.#options;
    // Without a free slot nothing is taken from the rate of a destination.
    const admits = (destination: string) =>
      gates.mayBegin(destination, this.#share.hasSlot ? this.#queues.readyAt(destination) : 0);
    for (;;) {
      const destination = this.#share.next(this.#queues.readyDestinations(), admits);
      const entry = destination === undefined ? undefined : this.#queues.take(destination);
      if (entry === undefined) break;
      this.#inDelivery += 1;
      void this.#deliver(entry);
    }
    const isStrained = this.#isHeldUp || (!this.#share.hasSlot && this.#queues.waiting > 0);
    this.#strainedSince = isStrained
      ? Math.min(this.#strainedSince, this.#options.clock.monotonic())
      : Number.POSITIVE_INFINITY;
    this.#claimIfHeldUp();
    if (this.#inDelivery === 0) for (const ended of this.#onDeliveriesEnded.splice(0)) ended();
  }

  async #deliver(entry: QueuedRow): Promise<void> {
    const { row, key, claim, destination } = entry;
    const { gates, delivery, metrics, clock } = this.#options;
    const slot = this.#share.begin(destination);
    const entered = gates.enter(destination);
    const permit = entered instanceof Promise ? await entered : entered;
    const { outcome, report } =
      permit !== undefined && this.#claims.mayBegin(claim, row.id)
        ? await delivery.deliver(atBegin(entry, clock.monotonic()), claim.cutoff.signal, permit.isProbe)
        : { outcome: releaseOf(row), report: NOT_ASKED };
    if (permit !== undefined) gates.leave(destination, permit, row.id, report);
    metrics.outboxProcessingDuration((clock.monotonic() - slot.beganAt) / 1000);
    this.#share.end(slot, verdictOf(outcome));
    this.#inDelivery -= 1;
    this.#countQueued(entry, -1);
    this.#afterDelivery({ key, claim, destination }, outcome);
    this.#dispatch();
    if (this.#scopes.wantsMore(destination)) this.#claimFurther();
    if (this.#scopes.takeBack(destination)) this.#options.onMayClaim();
  }

  /** @param held without its payload, which may be large */
  #afterDelivery(held: HeldRow, outcome: Outcome): void {
    const { key } = held;
    if (!goesBack(outcome)) {
      this.#queues.done(key);
      this.#settle(held, outcome);
      return;
    }
    // Cut off at shutdown: the row may have arrived, so the claim stays until its lease ends.
    if (!(this.#cutOff && outcome.kind === "release")) {
      if (outcome.kind === "retry") this.#expectRetry(outcome.delayMs);
      this.#releases.add(held);
      this.#settle(held, outcome);
    }
    for (const behind of this.#queues.drop(key)) this.#release(behind);
  }

  #expectRetry(delayMs: number): void {
    const { clock } = this.#options;
    this.#retriesUntil = Math.max(this.#retriesUntil, clock.monotonic() + delayMs + SETTLING_MS);
  }

  #countQueued({ destination }: HeldRow, delta: 1 | -1): void {
    if (destination !== NO_DESTINATION) this.#options.metrics.outboxQueueDepth(destination, delta);
  }

  // Settling

  /** Releases a waiting row. @param overfull the destination at which too many wait, if that is why */
  #release(entry: QueuedRow, overfull?: string): void {
    this.#countQueued(entry, -1);
    this.#releases.add(entry, overfull);
    this.#settle(entry, releaseOf(entry.row));
  }

  #settle(held: HeldRow, outcome: Outcome): void {
    const { claim, destination } = held;
    const scoped =
      outcome.kind === "retry" ? { ...outcome, scope: this.#scopes.scopeOf(destination), destination } : outcome;
    this.#claims.settle(claim, scoped, (settlement) => {
      if (settlement === "abandoned") return;
      if (this.#releases.settled(held, goesBack(outcome) && settlement !== "busy")) {
        this.#claimIfHeldUp();
        this.#claimFurther();
      }
    });
  }
}

/** The row as its delivery begins: it may have waited long for a slot, or for the rows before it. */
function atBegin({ row, claim }: QueuedRow, now: number): ClaimedRow {
  if (row.expiresInMs === null) return row;
  return { ...row, expiresInMs: row.expiresInMs - (now - claim.claimedAt) };
}

/** A burst that ends sooner is left to one process: mostly a single claim has taken it anyway. */
const STRAINED_MS = 500;

/**
 * Longest wait of a row that a receipt has claimed, by the deliveries of the last second: less than it takes until other
 * processes help.
 */
const RECEIVED_WAIT_MS = 200;

/** The delay of a retry begins when it is settled, shortly after the attempt failed. */
const SETTLING_MS = 1000;

function verdictOf(outcome: Outcome): Verdict {
  if (outcome.kind === "sent") return "healthy";
  if (outcome.kind === "retry" || outcome.kind === "park") return "failed";
  return outcome.kind === "dead" && outcome.attempted ? "failed" : "unknown";
}

/** The row is unfinished, and the later ones of its key stay behind it. */
function goesBack({ kind }: Outcome): boolean {
  return kind === "retry" || kind === "park" || kind === "release";
}

function releaseOf({ id, claimToken }: ClaimedRow): Outcome {
  return { id, claimToken, kind: "release" };
}

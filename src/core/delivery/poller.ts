import { StoppingError } from "../../model/errors.ts";
import type { ClaimedRow, ClaimToken, Outcome } from "../../model/rows.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import { type ClaimResult, NO_DESTINATION, type OutboxStore, type ReceiptClaim } from "../../ports/store.ts";
import type { Clock, Random } from "../../time/clock.ts";
import { onAbort } from "../../time/wait.ts";
import { NOT_ASKED, type Verdict } from "../destinations/breaker.ts";
import type { DestinationGates } from "../destinations/gates.ts";
import { Claims, type HeldClaim } from "./claims.ts";
import type { Delivery } from "./deliver.ts";
import type { MessageExpansion } from "./expansion.ts";
import { ClaimRooms, FairShare } from "./fairShare.ts";
import { type HeldRow, KeyQueues, laneOf, type QueuedRow, Releases } from "./keyQueues.ts";

export interface PollerOptions {
  readonly store: OutboxStore;
  readonly delivery: Delivery;
  readonly expansion: Pick<MessageExpansion, "running" | "stateOf" | "begin" | "ended">;
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
 * Claims outbox rows, delivers them and settles their outcomes: the rows of a key in order, different keys in parallel.
 * Claims, deliveries and settling overlap, and a destination that fails or hangs does not hold up the others.
 */
export class Poller {
  readonly #options: PollerOptions;
  readonly claims: Claims;
  readonly #queues = new KeyQueues();
  readonly share: FairShare;
  readonly #releases = new Releases();
  readonly #rooms: ClaimRooms;
  #passing: Promise<unknown> = Promise.resolve();
  /** Most rows that running receipts may claim. */
  #receiving = 0;
  /** No due row was left when a claim was last made, or rows of a receipt were left to one. */
  #isCaughtUp = false;
  /** Destinations that probably have due rows in the database, not yet claimed. */
  #unread: ReadonlySet<string> = new Set();
  /** Rows that the last claim read wait for an earlier row of their key, which may be in delivery here. */
  #hasHeldBack = false;
  /** Of a table with one queue: destinations that were closed when a claim returned a row of theirs. */
  readonly #closedInQueue = new Set<string>();
  #inDelivery = 0;
  #stopping = false;
  #cutOff = false;
  /** Until when a row that this process failed to deliver waits for its retry; monotonic ms. */
  #retriesUntil = Number.NEGATIVE_INFINITY;
  #onRest: (() => void)[] = [];
  #claimed = 0;

  constructor(options: PollerOptions) {
    const { concurrency, destinations, batchSize, gates, clock } = options;
    this.#options = options;
    this.claims = new Claims(options);
    const wasUnhealthy = (destination: string) => gates.wasUnhealthy(destination);
    this.share = new FairShare({ concurrency, isShared: destinations.length > 1, wasUnhealthy, clock });
    this.#rooms = new ClaimRooms({ queues: this.#queues, share: this.share, gates, destinations, batchSize });
    gates.listen({
      onChange: () => {
        this.#dispatch();
        options.onMayClaim();
      },
      onClose: (destination) => this.share.forget(destination),
    });
  }

  /** Makes all due claims. @returns `again` if more rows are due; `full` if no room is left until a wake */
  pass(): Promise<"again" | "idle" | "full"> {
    const pass = this.#pass();
    this.#passing = pass;
    return pass;
  }

  /**
   * A claim for a receipt to make, if its rows would be claimed next: no other row is due, there is room, and no
   * destination is unhealthy or held up by its limits.
   *
   * @param rows how many the receipt stores
   * @returns undefined if it is not to claim; its rows are then claimed by a pass
   */
  claimForReceipt(rows: number): ReceiptClaim | undefined {
    const limit = Math.min(rows, this.#roomForReceipts());
    if (limit < rows) this.#isCaughtUp = false;
    if (limit <= 0) return undefined;
    const { request, made } = this.claims.ofReceipt(limit);
    const releasedKeys = this.#releases.claimBegan();
    this.#receiving += limit;
    const end = (claimed: readonly ClaimedRow[]): void => {
      this.#receiving -= limit;
      if (claimed.length > 0) this.#acceptAll(claimed, made(claimed), releasedKeys);
      this.#releases.claimEnded(releasedKeys);
      this.#reportEnd();
    };
    return { request, end };
  }

  /** Longest wait for the next pass in ms: due retries and breakers send no wake. */
  get nextPassWithinMs(): number {
    const { gates, clock, destinations, pollIntervalMs } = this.#options;
    // Unhealthy destinations have their turn, and are asked again.
    const polls = clock.monotonic() < this.#retriesUntil || destinations.some((each) => this.#rooms.isUnhealthy(each));
    // A change that is overdue, as behind a pause, must not repeat passes at once.
    const changesWithinMs = Math.max(gates.changesWithinMs, LEAST_WAIT_MS);
    return Math.min(changesWithinMs, polls ? pollIntervalMs : Number.POSITIVE_INFINITY);
  }

  /** @param names of destinations that no process alive has configured: rows that are pinned to them die */
  claimUnknown(names: readonly string[]): void {
    this.#rooms.unknown = names;
    if (names.length > 0) this.#options.onMayClaim();
  }

  get claimed(): number {
    return this.#claimed;
  }

  /**
   * Renews leases and, unless another process does, reclaims expired claims. Call it every second until `stop` returns.
   */
  async tick(reclaims = true): Promise<void> {
    await this.claims.renew();
    if (reclaims && !this.#stopping) await this.claims.reclaim();
  }

  /**
   * Stops claiming, releases what waits, and lets deliveries end. When `cutoff` aborts, running deliveries are cut off
   * and their rows keep the claims: the outcome is unknown, so the rows become due again when the lease ends (spec,
   * "Shutdown").
   */
  async stop(cutoff: AbortSignal): Promise<void> {
    this.#stopping = true;
    for (const entry of this.#queues.dropAll()) this.#release(entry);
    using _ = onAbort(cutoff, () => {
      this.#cutOff = true;
      this.claims.giveUp(new StoppingError("the graceful stop timed out"));
    });
    // A running claim ends first; its rows are released.
    await this.#passing.catch(() => {});
    if (!this.#isAtRest) await new Promise<void>((resolve) => this.#onRest.push(resolve));
    await this.#options.expansion.ended();
    await this.claims.flushed();
  }

  // Claiming

  async #pass(): Promise<"again" | "idle" | "full"> {
    // No event signals that healthy destinations want no slots any more.
    this.#dispatch();
    this.#releaseOverflow();
    if (this.#stopping || this.#releases.holdUpClaims) return "idle";
    const room = this.#roomForClaim();
    const { more, heldBack, unread = NONE } = room.size === 0 ? NOTHING : await this.#claim(room);
    this.#hasHeldBack = heldBack > 0;
    this.#unread = new Set(this.#options.destinations.filter((each) => unread.has(each) || !room.has(each)));
    this.#isCaughtUp = !more && room.size > 0;
    if (!more || this.#stopping || this.#releases.holdUpClaims) return "idle";
    if (unread.size === 0 || this.#options.destinations.some((each) => unread.has(each) && this.#mayClaimFor(each))) {
      this.#unread = NONE;
      return "again";
    }
    // While slots are free, which have only rows that go back or wait for others, the next claim waits for more to share it.
    return this.share.hasSlot ? "idle" : "full";
  }

  /** The destinations to claim for. One queue of all is claimed from while few rows wait, and its first row may go out. */
  #roomForClaim(): ReadonlyMap<string, number> {
    const { store, destinations, batchSize } = this.#options;
    if (store.hasQueues) return this.#rooms.all();
    for (const each of this.#closedInQueue) if (!this.#rooms.isClosed(each)) this.#closedInQueue.delete(each);
    const hasRoom = this.#closedInQueue.size === 0 && this.#queues.waiting <= batchSize / 2;
    return new Map(hasRoom ? destinations.map((each) => [each, batchSize]) : []);
  }

  #mayClaimFor(destination: string): boolean {
    if (this.#releases.holdUpClaims) return false;
    return this.#options.store.hasQueues ? this.#rooms.of(destination) > 0 : this.#roomForClaim().size > 0;
  }

  /** Rows that a receipt may claim. More would wait here while other replicas may have free slots. */
  #roomForReceipts(): number {
    if (!this.#isCaughtUp || this.#stopping || this.#releases.holdUpClaims || !this.#rooms.areFree()) return 0;
    const soon = this.share.capacityWithin(RECEIVED_WAIT_MS);
    return Math.min(soon, this.#options.batchSize) - this.#queues.waiting - this.#receiving;
  }

  #releaseOverflow(): void {
    const { hasQueues } = this.#options.store;
    for (const destination of this.#queues.destinations()) {
      // From one queue of all, the next claim would return the same rows.
      if (hasQueues ? !this.#rooms.isOverfull(destination) : !this.#rooms.isClosed(destination)) continue;
      for (const entry of this.#queues.dropAt(destination)) this.#release(entry);
    }
  }

  async #claim(room: ReadonlyMap<string, number>): Promise<ClaimResult> {
    const { delivery, expansion, gates, batchSize } = this.#options;
    const releasedKeys = this.#releases.claimBegan();
    const probed = new Map(
      [...room.keys()].map((each) => [each, gates.probed(each)] as const).filter(([, ids]) => ids.length > 0),
    );
    try {
      const queues = {
        room,
        busy: this.#rooms.busy,
        exceptIds: [...probed.values()].flat(),
        routing: delivery.routing,
        expansion,
      };
      const { result, claim } = await this.claims.make(batchSize, queues);
      const returned = this.#acceptAll(result.rows, claim, releasedKeys);
      for (const each of probed.keys()) if (!returned.has(each)) gates.forgetProbed(each);
      if (!this.#stopping) expansion.begin(result.lists ?? []);
      return result;
    } finally {
      this.#releases.claimEnded(releasedKeys);
    }
  }

  #acceptAll(rows: readonly ClaimedRow[], claim: HeldClaim, releasedKeys: ReadonlySet<string>): ReadonlySet<string> {
    const returned = new Set<string>();
    for (const row of rows) {
      const destination = this.#options.delivery.destinationOf(row) ?? NO_DESTINATION;
      returned.add(destination);
      const key = laneOf(row, destination);
      this.#accept({ row, key, claim, destination, isRetry: row.attempt > 0 }, releasedKeys);
    }
    this.#claimed += rows.length;
    if (rows.length > 0) this.#dispatch();
    return returned;
  }

  #accept(entry: QueuedRow, releasedKeys: ReadonlySet<string>): void {
    const { row, key, destination } = entry;
    const isClosed = this.#rooms.isClosed(destination);
    if (isClosed) this.#closedInQueue.add(destination);
    // Behind a row of its key that waits for a destination with limits it would count as one of their rows.
    const head = this.#queues.destinationOf(key);
    const isBehindOther = head !== undefined && head !== destination && this.#options.store.hasQueues;
    const waitsElsewhere = isBehindOther && this.#rooms.isLimited(head);
    if (this.#stopping || isClosed || waitsElsewhere || (key !== null && releasedKeys.has(key))) {
      this.#releases.addOnArrival(entry);
      this.#settle(entry, releaseOf(row));
    } else {
      this.#queues.add(entry);
      this.#countQueued(entry, 1);
    }
  }

  // Delivering

  #dispatch(): void {
    const { gates } = this.#options;
    // Without a free slot nothing is taken from the rate of a destination.
    const admits = (destination: string) =>
      gates.mayBegin(destination, this.share.hasSlot ? this.#queues.readyAt(destination) : 0);
    for (;;) {
      const destination = this.share.next(this.#queues.readyDestinations(), admits);
      const entry = destination === undefined ? undefined : this.#queues.take(destination);
      if (entry === undefined) break;
      this.#inDelivery += 1;
      void this.#deliver(entry);
    }
    this.#reportEnd();
  }

  get #isAtRest(): boolean {
    return this.#inDelivery === 0 && this.#receiving === 0;
  }

  #reportEnd(): void {
    if (this.#isAtRest) for (const atRest of this.#onRest.splice(0)) atRest();
  }

  async #deliver(entry: QueuedRow): Promise<void> {
    const { row, key, claim, destination } = entry;
    const { gates, delivery, metrics, clock } = this.#options;
    const slot = this.share.begin(destination);
    const entered = gates.enter(destination);
    const permit = entered instanceof Promise ? await entered : entered;
    const { outcome, report } =
      permit !== undefined && this.claims.mayBegin(claim, row.id)
        ? await delivery.deliver(atBegin(entry, clock.monotonic()), claim.cutoff.signal, permit.isProbe)
        : { outcome: releaseOf(row), report: NOT_ASKED };
    if (permit !== undefined) gates.leave(destination, permit, row.id, report);
    metrics.outboxProcessingDuration((clock.monotonic() - slot.beganAt) / 1000);
    this.share.end(slot, verdictOf(outcome));
    this.#inDelivery -= 1;
    this.#countQueued(entry, -1);
    this.#afterDelivery({ key, claim, destination, isRetry: row.attempt > 0 }, outcome);
    this.#dispatch();
    if (this.#unread.has(destination) && this.#mayClaimFor(destination)) this.#options.onMayClaim();
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

  #release(entry: QueuedRow): void {
    this.#countQueued(entry, -1);
    this.#releases.add(entry);
    this.#settle(entry, releaseOf(entry.row));
  }

  #settle(held: HeldRow, outcome: Outcome): void {
    const { claim, destination, isRetry } = held;
    // What follows a retry may be behind the cursor of its queue.
    const located = outcome.kind === "retry" || isRetry ? { ...outcome, destination } : outcome;
    this.claims.settle(claim, located, (result) => {
      if (result === "abandoned") return;
      if (this.#hasHeldBack && held.key !== null && !goesBack(outcome)) this.#options.onMayClaim();
      if (this.#releases.settled(held, goesBack(outcome))) this.#options.onMayClaim();
    });
  }
}

const NONE: ReadonlySet<string> = new Set();
const NOTHING: ClaimResult = { rows: [], more: false, heldBack: 0 };

/** The row as its delivery begins: it may have waited long for a slot, or for the rows before it. */
function atBegin({ row, claim }: QueuedRow, now: number): ClaimedRow {
  if (row.expiresInMs === null) return row;
  return { ...row, expiresInMs: row.expiresInMs - (now - claim.claimedAt) };
}

const LEAST_WAIT_MS = 20;

/** Longest wait of a row that a receipt claims, by the last second's rate: shorter than until other processes help. */
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

import { errorText, StoppingError } from "../../model/errors.ts";
import type { ClaimedRow, ClaimToken, Settlement } from "../../model/rows.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import { type ClaimResult, type ClaimScope, type Lease, NO_DESTINATION, type OutboxStore } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";
import type { DestinationGates } from "../destinations/gates.ts";
import { NOT_ASKED } from "../destinations/receiver.ts";
import { ClaimScopes } from "./claimScopes.ts";
import type { Delivered } from "./deliver.ts";
import { FairShare, type Verdict } from "./fairShare.ts";
import { KeyLanes, type LaneRow } from "./keyQueues.ts";
import { Leases } from "./leases.ts";
import { type Outcome, type Settled, Settler } from "./settler.ts";

export interface PollerOptions {
  readonly store: OutboxStore;
  /** Delivers one row, as a breaker's probe where it is told so; never rejects. */
  readonly deliver: (row: ClaimedRow, signal: AbortSignal, isProbe: boolean) => Promise<Delivered>;
  readonly newToken: () => ClaimToken;
  /** Called when a claim may be made again after a pass that might not make one: time for the next pass. */
  readonly onRoom: () => void;
  /** Name of the destination to which a topic goes; undefined when no route matches. */
  readonly destinationOf: (topic: string | null) => string | undefined;
  /** The names of all destinations. */
  readonly destinations: readonly string[];
  /** What may be delivered to them now. */
  readonly gates: DestinationGates;
  /** Told of each failure after which a row waits: when its outcome has been written, in ms. */
  readonly onRetry: (delayMs: number) => void;
  /** Told, by its destination, of each row that comes to wait for its delivery (+1) or is through with it (-1); not of one without a route. */
  readonly onQueueChange: (destination: string, delta: 1 | -1) => void;
  /** Most rows of one claim (`outbox.batchSize`). */
  readonly batchSize: number;
  /** Most rows in delivery at a time (`outbox.concurrency`). */
  readonly concurrency: number;
  /** Ceiling of a claim in ms, however often renewed (`outbox.claimTimeoutMs`). */
  readonly claimTimeoutMs: number;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly wait: (ms: number) => Promise<void>;
}

/**
 * Claims outbox rows and delivers them: rows of one key one after another, different keys beside each other up to `concurrency`.
 * The next claim is made while the last one is still being delivered, and outcomes are settled in batches beside both. Destinations share the slots and
 * the claims, so that one that fails or hangs keeps the others from nothing.
 */
export class Poller {
  readonly #options: PollerOptions;
  readonly #lease: Lease;
  readonly #leases: Leases;
  readonly #lanes = new KeyLanes();
  readonly #share: FairShare;
  readonly #scopes: ClaimScopes;
  readonly #settler: Settler;
  /**
   * Keys whose row went back to waiting while the database does not know it yet. A claim that runs meanwhile may return later
   * rows of such a key, because the row still counts as held by this process: they are given back too.
   */
  readonly #turnedBack = new Map<string, number>();
  /** For each claim that runs: the keys that were turned back when it began or have been since, also if the database knows by now. */
  readonly #turnedBackDuringClaims = new Set<Set<string>>();
  /**
   * Rows that were given back as soon as their claim returned them, while the database does not know it yet. No claim is made meanwhile: it would return
   * still later rows of the same keys, which then had to be given back for the sake of these, the claim after it would return these for the
   * sake of those, and so on without one delivery.
   */
  readonly #returned = new Set<LaneRow>();
  /** Rows that were given back because too many waited, while the database does not know it yet, with the destination at which they did. */
  readonly #goingBack = new Map<LaneRow, string>();
  /** Rows whose outcome the database refuses, of claims with other open rows, by their key. */
  readonly #heldByRefusal = new Map<LaneRow, string | null>();
  #passing: Promise<unknown> = Promise.resolve();
  readonly #furtherClaims = new Set<Promise<void>>();
  /** Why one of them failed: the next pass fails with it. */
  #furtherError: unknown;
  /** No claim is made beside the usual one. */
  #claimsAlone = false;
  /** The last usual claim found only rows behind those that claims beside it had taken: the next one is made before them. */
  #usualFirst = false;
  #inDelivery = 0;
  #stopping = false;
  #cutOff = false;
  /** The last pass left off because no claim may be made. */
  #wantsRoom = false;
  /** When the usual claim is to be made though nothing has come. By the monotonic clock, in ms. */
  #looksOnAt = Number.POSITIVE_INFINITY;
  #onDeliveriesEnded: (() => void)[] = [];

  constructor(options: PollerOptions) {
    const { store, clock, log, metrics } = options;
    this.#options = options;
    const { claimTimeoutMs, concurrency, destinations, batchSize, gates } = options;
    this.#share = new FairShare({ concurrency, isShared: destinations.length > 1, clock });
    this.#scopes = new ClaimScopes({
      lanes: this.#lanes,
      share: this.#share,
      destinations,
      batchSize,
      claimBytes: MAX_CLAIM_BYTES,
      rowsWanted: (destination) => gates.rowsWanted(destination, () => this.#share.perSecond(destination)),
      probed: (destination) => gates.probed(destination),
      isGivingBack: (destination) => [...this.#goingBack.values()].includes(destination),
      forgetProbed: (destination) => gates.forgetProbed(destination),
      clock,
    });
    gates.listen({
      onChange: () => {
        this.#pump();
        options.onRoom();
      },
      onClose: (destination) => this.#share.forget(destination),
    });
    this.#lease = { leaseMs: Math.min(claimTimeoutMs, LEASE_MS), claimTimeoutMs };
    this.#leases = new Leases(store, this.#lease, clock, log);
    this.#settler = new Settler({
      store,
      clock,
      log,
      wait: options.wait,
      onSettled: (outcome, closed) => this.#settled(outcome, closed),
      onRefused: (outcome, reason) => this.#refused(outcome, reason),
      onError: (error) => {
        metrics.outboxProcessError();
        log.warn({ reason: errorText(error) }, "outcomes not settled yet, trying again");
      },
    });
  }

  /** Makes the claims for which there is room. @returns `again` when more rows are due and the next claim may be made */
  pass(): Promise<"again" | "idle"> {
    const pass = this.#pass();
    this.#passing = pass;
    return pass;
  }

  /** Rows have come to the outbox: the next pass looks for them. */
  wake(): void {
    this.#scopes.wake();
  }

  /**
   * Longest wait for the next pass, in ms: an ill destination may have its turn without an event, a breaker let a probe through, or the database have more to
   * look through for the usual claim.
   */
  get nextPassWithinMs(): number {
    const lookMs = Math.max(0, this.#looksOnAt - this.#options.clock.monotonic());
    return Math.min(this.#scopes.nextClaimWithinMs, this.#options.gates.changesWithinMs, lookMs);
  }

  /** Whether deliveries to a destination hang, crawl or fail just now. */
  isSlow(destination: string): boolean {
    return this.#share.isIll(destination);
  }

  /** As {@link FairShare.answerEnded}. */
  answerEnded(destination: string, isWhole: boolean): void {
    this.#share.answerEnded(destination, isWhole);
  }

  /** Renews leases and takes back what dead replicas left. Call it about every second, until `stop` has returned. */
  async tick(): Promise<void> {
    await this.#leases.tick();
    if (this.#stopping) return;
    const { store, claimTimeoutMs, metrics, log } = this.#options;
    const reclaimed = await store.reclaim(RECLAIM_LIMIT, claimTimeoutMs);
    if (reclaimed > 0) {
      metrics.outboxReclaimed(reclaimed);
      log.warn({ rows: reclaimed }, "claims whose lease ran out are pending again");
    }
  }

  /**
   * Cuts off deliveries whose lease has run out. Call it about every second, until `stop` has returned. Apart from
   * `tick`, whose statements may hang as long as the database does.
   */
  cutOff(): void {
    this.#leases.cutOff();
  }

  /**
   * Claims nothing more, gives back what waits, and lets what is in delivery end. When `cutoff` aborts, the rest is cut off and keeps
   * its claim: its outcome is unknown, so it comes back when its lease ends (spec, "Shutdown").
   */
  async stop(cutoff: AbortSignal): Promise<void> {
    this.#stopping = true;
    for (const entry of this.#lanes.dropAll()) this.#giveUp(entry);
    const cut = () => {
      this.#cutOff = true;
      this.#settler.giveUp();
      this.#leases.abortAll(new StoppingError("the time for a graceful stop is over"));
    };
    if (cutoff.aborted) cut();
    else cutoff.addEventListener("abort", cut, { once: true });
    try {
      // A claim that is under way ends first; its rows are given back.
      await this.#passing.catch(() => {});
      await Promise.all(this.#furtherClaims);
      await this.#deliveriesEnded();
      await this.#settler.flushed();
    } finally {
      cutoff.removeEventListener("abort", cut);
    }
  }

  async #pass(): Promise<"again" | "idle"> {
    this.#looksOnAt = Number.POSITIVE_INFINITY;
    // A destination's turn may have come, without an event.
    this.#pump();
    for (const destination of this.#scopes.overfull()) {
      for (const entry of this.#lanes.dropAt(destination)) {
        this.#goingBack.set(entry, destination);
        this.#giveUp(entry);
      }
    }
    const failure = this.#furtherError;
    this.#furtherError = undefined;
    if (failure !== undefined) throw failure;
    if (!this.#usualFirst) this.#claimFurther();
    this.#wantsRoom = !this.#hasRoom();
    if (this.#stopping || this.#wantsRoom) return "idle";
    const { rows, more, goesOnInMs } = await this.#claimUsual();
    if (goesOnInMs !== undefined) this.#looksOnAt = this.#options.clock.monotonic() + goesOnInMs;
    this.#claimFurther();
    if (!more || rows.length === 0 || this.#stopping) return "idle";
    this.#wantsRoom = !this.#hasRoom();
    return this.#wantsRoom ? "idle" : "again";
  }

  /** Rows behind those that a claim beside it was taking are held back, and may fill it up: then it is made again, alone. */
  async #claimUsual(): Promise<ClaimResult> {
    const { batchSize } = this.#options;
    const result = await this.#claim(batchSize, this.#scopes.usual());
    const isMissing = ({ rows, more }: ClaimResult) => this.#scopes.usual() !== undefined && more && rows.length === 0;
    this.#usualFirst = false;
    if (!isMissing(result) || this.#stopping) return result;
    this.#claimsAlone = true;
    try {
      await Promise.all(this.#furtherClaims);
      if (this.#stopping || !this.#hasRoom()) return result;
      const alone = await this.#claim(batchSize, this.#scopes.usual());
      this.#usualFirst = isMissing(alone);
      return alone;
    } finally {
      this.#claimsAlone = false;
    }
  }

  /**
   * Begins the claims that are due beside the usual one. None waits for another, since a look past a million rows takes its time. Of the rows of a key each
   * claim sees those that another one takes as not its own, and leaves out what is behind them.
   */
  #claimFurther(): void {
    if (this.#stopping || this.#claimsAlone || this.#returned.size > 0 || this.#furtherError !== undefined) return;
    for (const { scope, limit, ended } of this.#scopes.further()) {
      const claim = this.#claim(limit, scope)
        .then(
          ({ rows }) => ended(rows.length),
          (error) => {
            ended(undefined);
            this.#furtherError = error;
            this.#options.onRoom();
          },
        )
        .then(() => {
          this.#furtherClaims.delete(claim);
          this.#claimFurther();
        });
      this.#furtherClaims.add(claim);
    }
  }

  async #claim(limit: number, scope: ClaimScope | undefined): Promise<ClaimResult> {
    const { store, clock, metrics, newToken } = this.#options;
    const token = newToken();
    const turnedBack = new Set(this.#turnedBack.keys());
    this.#turnedBackDuringClaims.add(turnedBack);
    const claimedAt = clock.monotonic();
    try {
      const result = await store.claim({
        limit,
        maxBytes: MAX_CLAIM_BYTES,
        token,
        heldTokens: this.#leases.tokens(),
        ...this.#lease,
        ...(scope === undefined ? {} : { scope }),
      });
      if (result.rows.length > 0) {
        metrics.claimRows("poller", result.rows.length);
        metrics.claimDuration("poller", (clock.monotonic() - claimedAt) / 1000);
        this.#accept(token, result.rows, claimedAt, turnedBack);
      }
      this.#tellRefused(result.refused ?? []);
      return result;
    } catch (error) {
      metrics.outboxProcessError();
      throw error;
    } finally {
      this.#turnedBackDuringClaims.delete(turnedBack);
    }
  }

  #tellRefused(refused: NonNullable<ClaimResult["refused"]>): void {
    const { metrics, log } = this.#options;
    for (const { id, reason } of refused.slice(0, REFUSED_NAMED)) {
      log.error({ id, reason }, "the database refuses to let this row be claimed: it stays pending, and its key waits");
    }
    const others = refused.length - REFUSED_NAMED;
    if (others > 0) log.error({ rows: others }, "the database refuses to let further rows be claimed");
    if (refused.length > 0) metrics.outboxRowRefused(refused.length);
  }

  #accept(token: ClaimToken, rows: readonly ClaimedRow[], claimedAt: number, turnedBack: ReadonlySet<string>): void {
    const batch = this.#leases.open(token, rows, claimedAt);
    for (const row of rows) {
      const destination = this.#options.destinationOf(row.topic) ?? NO_DESTINATION;
      const entry = { row, batch, destination };
      this.#scopes.met(destination);
      if (this.#stopping || this.#scopes.isClosed(destination) || (row.key !== null && turnedBack.has(row.key))) {
        this.#returned.add(entry);
        this.#giveBack(entry);
      } else {
        this.#lanes.add(entry);
        this.#queueChanges(entry, 1);
      }
    }
    this.#pump();
  }

  #pump(): void {
    for (;;) {
      const destination = this.#share.next(this.#openDestinations());
      const entry = destination === undefined ? undefined : this.#lanes.take(destination);
      if (entry === undefined) break;
      this.#inDelivery += 1;
      void this.#deliver(entry);
    }
    this.#tellOfRoom();
    if (this.#inDelivery === 0) for (const ended of this.#onDeliveriesEnded.splice(0)) ended();
  }

  /** Destinations with a row that may be delivered, as far as their gates are concerned. */
  *#openDestinations(): Iterable<string> {
    const { gates } = this.#options;
    const hasSlot = this.#share.hasSlot;
    for (const destination of this.#lanes.readyDestinations()) {
      // Without a slot nothing is taken from its rate.
      if (gates.mayBegin(destination, hasSlot ? this.#lanes.readyAt(destination) : 0)) yield destination;
    }
  }

  async #deliver(entry: LaneRow): Promise<void> {
    const { row, batch, destination } = entry;
    const { gates, deliver, metrics, clock } = this.#options;
    const slot = this.#share.begin(destination);
    const entered = gates.enter(destination);
    const pass = entered instanceof Promise ? await entered : entered;
    const { settlement, report } =
      pass !== undefined && this.#leases.mayBegin(batch, row.id)
        ? await deliver(row, batch.cutoff.signal, pass.isProbe)
        : { settlement: { ...claimOf(row), kind: "release" as const }, report: NOT_ASKED };
    if (pass !== undefined) gates.leave(destination, pass, row.id, report);
    metrics.outboxProcessingDuration((clock.monotonic() - slot.beganAt) / 1000);
    this.#share.end(slot, verdictOf(settlement));
    this.#inDelivery -= 1;
    this.#queueChanges(entry, -1);
    this.#afterDelivery(entry, settlement);
    this.#pump();
    if (this.#scopes.wantsMore(destination)) this.#claimFurther();
  }

  #afterDelivery(entry: LaneRow, settlement: Settlement): void {
    const { key } = entry.row;
    if (settlement.kind === "sent" || settlement.kind === "dead") {
      this.#lanes.done(key);
      this.#settle(entry, settlement);
      return;
    }
    // Cut off at shutdown: nobody knows whether it arrived, so the claim stays until its lease ends.
    if (!(this.#cutOff && settlement.kind === "release")) {
      if (settlement.kind === "retry") this.#options.onRetry(settlement.delayMs);
      this.#turnBack(key);
      this.#settle(entry, settlement);
    }
    for (const behind of this.#lanes.drop(key)) this.#giveUp(behind);
  }

  #queueChanges({ destination }: LaneRow, delta: 1 | -1): void {
    if (destination !== NO_DESTINATION) this.#options.onQueueChange(destination, delta);
  }

  #giveUp(entry: LaneRow): void {
    this.#queueChanges(entry, -1);
    this.#giveBack(entry);
  }

  #giveBack(entry: LaneRow): void {
    this.#turnBack(entry.row.key);
    this.#settle(entry, { ...claimOf(entry.row), kind: "release" });
  }

  #settle(entry: LaneRow, settlement: Settlement): void {
    const { destination } = entry;
    const placed =
      settlement.kind === "retry"
        ? { ...settlement, scope: this.#scopes.scopeOf(destination), destination }
        : settlement;
    this.#settler.add({ entry, settlement: placed, heldUntil: entry.batch.deadline });
  }

  #settled({ entry, settlement }: Outcome, settled: Settled): void {
    this.#close(entry);
    if (goesBack(settlement)) this.#backInDatabase(entry.row.key);
    this.#isBack(entry);
    if (settled === "written") return;
    this.#options.metrics.claimsLost("poller", 1);
    const { log } = this.#options;
    const fields = { id: settlement.id, outcome: settlement.kind };
    if (settled === "refused") log.warn(fields, "claim lost: the row was taken back before its outcome was written");
    else
      log.warn(fields, "claim lost: written by an earlier try without an answer, or taken back when the lease ran out");
  }

  /** The row stays in processing until its lease ends, and is delivered again then at the earliest. */
  #refused({ entry, settlement }: Outcome, reason: string): void {
    const { id, key } = entry.row;
    const { kind } = settlement;
    if (goesBack(settlement)) this.#heldByRefusal.set(entry, key);
    this.#close(entry);
    this.#isBack(entry);
    this.#options.metrics.outboxRowRefused(1);
    this.#options.log.error(
      { id, outcome: kind, reason },
      "the database refuses every outcome of this row: it stays claimed until its lease ends, and is then delivered again",
    );
  }

  /**
   * A row that was not delivered and could not be given back still counts as held by this process while other rows of its claim are open, and would stop
   * nobody: its key is kept back here until the claim is no longer named.
   */
  #close(entry: LaneRow): void {
    this.#leases.close(entry.batch, entry.row.id);
    if (this.#heldByRefusal.size === 0) return;
    for (const [refused, key] of this.#heldByRefusal) {
      if (refused.batch.open.size > 0) continue;
      this.#heldByRefusal.delete(refused);
      this.#backInDatabase(key);
    }
  }

  #turnBack(key: string | null): void {
    if (key === null) return;
    this.#turnedBack.set(key, (this.#turnedBack.get(key) ?? 0) + 1);
    for (const keys of this.#turnedBackDuringClaims) keys.add(key);
  }

  #backInDatabase(key: string | null): void {
    if (key === null) return;
    const left = (this.#turnedBack.get(key) ?? 0) - 1;
    if (left > 0) this.#turnedBack.set(key, left);
    else this.#turnedBack.delete(key);
  }

  #hasRoom(): boolean {
    return this.#scopes.hasRoom() && this.#returned.size === 0;
  }

  /** A row that was given back is in the database again. */
  #isBack(entry: LaneRow): void {
    const wasLast = this.#goingBack.delete(entry) && this.#goingBack.size === 0;
    if (!this.#returned.delete(entry) && !wasLast) return;
    this.#tellOfRoom();
    this.#claimFurther();
  }

  #tellOfRoom(): void {
    if (!this.#wantsRoom || !this.#hasRoom()) return;
    this.#wantsRoom = false;
    this.#options.onRoom();
  }

  async #deliveriesEnded(): Promise<void> {
    if (this.#inDelivery > 0) await new Promise<void>((resolve) => this.#onDeliveriesEnded.push(resolve));
  }
}

/** A killed replica's rows are back within this time; a live one renews at a third of it. */
const LEASE_MS = 30_000;
/** Bounds the memory of claimed payloads: only a few claims wait at a time. */
const MAX_CLAIM_BYTES = 16 * 1024 * 1024;
const RECLAIM_LIMIT = 1000;
/** Of the rows that one claim found to be refused: the reason is mostly the same. */
const REFUSED_NAMED = 20;

function verdictOf(settlement: Settlement): Verdict {
  if (settlement.kind === "sent") return "well";
  if (settlement.kind === "retry" || settlement.kind === "park") return "failed";
  return settlement.kind === "dead" && settlement.attempted ? "failed" : "unknown";
}

/** The row is unfinished, and the later ones of its key stay behind it. */
function goesBack({ kind }: Settlement): boolean {
  return kind === "retry" || kind === "park" || kind === "release";
}

function claimOf(row: ClaimedRow): Pick<Settlement, "id" | "claimToken"> {
  return { id: row.id, claimToken: row.claimToken };
}

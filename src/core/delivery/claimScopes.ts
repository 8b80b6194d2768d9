import type { ClaimScope } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";
import type { DestinationGates } from "../destinations/gates.ts";
import type { FairShare } from "./fairShare.ts";
import type { KeyQueues, Releases } from "./keyQueues.ts";

/** A claim in addition to the usual one; report its end to {@link ClaimScopes.furtherEnded}. */
export interface FurtherClaim {
  /** A destination, or {@link OTHERS}. */
  readonly of: string;
  readonly scope: ClaimScope;
  /** Most rows. */
  readonly limit: number;
  /** Monotonic ms. */
  readonly beganAt: number;
}

export interface ClaimScopesOptions {
  readonly queues: KeyQueues;
  readonly share: FairShare;
  readonly gates: Pick<DestinationGates, "rowsWanted" | "probed" | "forgetProbed">;
  readonly releases: Pick<Releases, "overflowAt">;
  readonly destinations: readonly string[];
  /** `outbox.batchSize`. */
  readonly batchSize: number;
  /** Most bytes of the payloads of one claim, except its last row. */
  readonly claimBytes: number;
  readonly clock: Clock;
}

/**
 * Chooses which rows to claim, so that rows of a destination without room stay in the database and do not block the
 * rows behind them:
 *
 * - The usual claim takes the next rows in order, except those of destinations that are closed or apart. Apart:
 *   unhealthy, stalled, or with a full queue.
 * - A destination apart has its own claims: an unhealthy one for as many rows as it handles in a quarter of a second,
 *   with a pause between them; any for at most its free queue. While deliveries stall, the end of one starts the next
 *   claim.
 * - While enough rows wait but hardly any of some destination, that one has its own claims too; and one claim skips
 *   the rows of all destinations that had some lately, to find any others.
 * - No claim includes a closed one.
 *
 * Rows that no route matches belong to the others of every claim.
 */
export class ClaimScopes {
  readonly #options: ClaimScopesOptions;
  /** Time of the last claim that returned a row of a destination. */
  readonly #returnedAt = new Map<string, number>();
  /** End of the last own claim of a destination. */
  readonly #claimedAt = new Map<string, number>();
  /** Running further claims, by {@link FurtherClaim.of}; true where it misses rows released meanwhile. */
  readonly #running = new Map<string, boolean>();
  /** Further claims that found nothing. */
  readonly #empty = new Map<string, EmptyClaim>();
  /** Destinations with a full queue; true where their last own claim since then was full. */
  readonly #full = new Map<string, boolean>();
  /** When rows of a destination last had to be released. */
  readonly #overfullAt = new Map<string, number>();
  /** Deliveries that began during the last usual claim. */
  #begunDuringUsual = 0;
  /** Those that the usual claim left out when it was last asked for. */
  #leftOut = new Set<string>();

  constructor(options: ClaimScopesOptions) {
    this.#options = options;
  }

  /** A claim returned a row of this destination. */
  returned(destination: string): void {
    this.#returnedAt.set(destination, this.#options.clock.monotonic());
  }

  /** Rows were added: empty claims are repeated soon. */
  wake(): void {
    for (const empty of this.#empty.values()) empty.isWoken = true;
  }

  /** Whether every claim excludes a destination. */
  isClosed(destination: string): boolean {
    return this.#rowsWanted(destination) === 0;
  }

  /** The scope that claims the rows of a destination; undefined for the usual one. */
  scopeOf(destination: string): string | undefined {
    return this.#claimsAlone(destination) ? ownScope(destination) : undefined;
  }

  /** Whether no destination is held up by its limits, or has claims apart: any row may be claimed. */
  areFree(): boolean {
    return this.#options.destinations.every((each) => this.#rowsWanted(each) === undefined && !this.#isApart(each));
  }

  /**
   * The usual claim starts while half of its limit still waits, or all of it where deliveries are fast: it runs beside
   * settlements and deliveries, which must not run out of rows meanwhile.
   */
  hasRoom(): boolean {
    const { queues, claimBytes } = this.#options;
    let rows = queues.waiting;
    let bytes = queues.bytesWaiting;
    for (const destination of this.#excepted()) {
      rows -= queues.waitingAt(destination);
      bytes -= queues.bytesWaitingAt(destination);
    }
    const limit = this.usualLimit;
    const enough = Math.min(Math.max(limit / 2, CLAIMS_AHEAD * this.#begunDuringUsual), limit);
    return rows <= enough && bytes <= claimBytes / 2;
  }

  /**
   * Most rows of the usual claim: what is delivered soon, rather than all of `outbox.batchSize`. Rows that wait here
   * keep their keys from other replicas. All of it where rows wait beside free slots, mostly behind others of their
   * keys: the next rows may be more of those.
   */
  get usualLimit(): number {
    const { queues, share, batchSize } = this.#options;
    if (share.hasSlot && queues.waiting > 0) return batchSize;
    const soon = Math.max(2 * share.concurrency, CLAIMS_AHEAD * this.#begunDuringUsual);
    const part = BATCH_PARTS.find((each) => soon <= batchSize / each) ?? 1;
    return Math.ceil(batchSize / part);
  }

  /** A usual claim has ended. @param begun deliveries that have begun meanwhile */
  usualEnded(begun: number): void {
    this.#begunDuringUsual = begun;
  }

  /** Of the usual claim; undefined for all rows. */
  usual(): ClaimScope | undefined {
    const excepted = this.#excepted();
    this.#leftOut = new Set(excepted);
    return excepted.length === 0 ? undefined : this.#allBut(excepted);
  }

  /** Whether {@link usual} left a destination out and would include it now; true once. */
  takeBack(destination: string): boolean {
    if (!this.#leftOut.has(destination) || this.isClosed(destination) || this.#isApart(destination)) return false;
    return this.#leftOut.delete(destination);
  }

  /** Destinations whose waiting rows must be released: closed ones, and those apart with too many. */
  overfull(): readonly string[] {
    const { queues } = this.#options;
    const overfull = this.#excepted().filter((destination) => {
      const waiting = queues.waitingAt(destination);
      return waiting > 0 && (this.isClosed(destination) || waiting > 2 * this.#budget(destination));
    });
    for (const destination of overfull) {
      if (!this.isClosed(destination)) this.#overfullAt.set(destination, this.#options.clock.monotonic());
      if (this.#full.has(destination)) this.#full.set(destination, true);
      if (this.#running.has(destination)) this.#running.set(destination, true);
    }
    return overfull;
  }

  /** The further claims to begin now, few at a time; the destination that waited longest comes first. */
  *further(): Iterable<FurtherClaim> {
    const { batchSize, destinations } = this.#options;
    const limit = Math.ceil(batchSize / 2);
    const claimedAt = (destination: string) => this.#claimedAt.get(destination) ?? Number.NEGATIVE_INFINITY;
    const wanting = this.#active()
      .filter((each) => this.#needsRows(each))
      .toSorted((a, b) => claimedAt(a) - claimedAt(b));
    const ownRunning = this.#running.size - (this.#running.has(OTHERS) ? 1 : 0);
    for (const each of wanting.slice(0, MOST_OWN_CLAIMS - ownRunning)) {
      yield this.#furtherClaim(each, this.#only(each), this.#isApart(each) ? this.#ownLimit(each) : limit);
    }
    if (!this.#looksForOthers()) return;
    const closed = destinations.filter((each) => this.isClosed(each));
    yield this.#furtherClaim(OTHERS, this.#allBut([...this.#active(), ...closed]), limit);
  }

  #looksForOthers(): boolean {
    const { destinations, queues, batchSize, claimBytes } = this.#options;
    // Each such claim may return rows whose destination the database cannot tell.
    const claims = 2 + destinations.length / 2;
    const hasRoomForAny = queues.waiting <= batchSize * claims && queues.bytesWaiting <= claimBytes * claims;
    return destinations.length > 1 && hasRoomForAny && !this.hasRoom() && this.#isRested(OTHERS);
  }

  #furtherClaim(of: string, scope: ClaimScope, limit: number): FurtherClaim {
    this.#running.set(of, false);
    return { of, scope, limit, beganAt: this.#options.clock.monotonic() };
  }

  /** A claim of {@link further} has ended. @param rows how many it returned; undefined when it failed */
  furtherEnded({ of, scope, limit, beganAt }: FurtherClaim, rows: number | undefined): void {
    const missedRows = this.#running.get(of) === true;
    this.#running.delete(of);
    if (rows === undefined) return;
    const now = this.#options.clock.monotonic();
    this.#claimedAt.set(of, now);
    if (this.#full.has(of)) this.#full.set(of, rows >= limit || missedRows);
    if (rows === 0 && scope.exceptIds !== undefined) this.#options.gates.forgetProbed(of);
    if (rows > 0) this.#empty.delete(of);
    else {
      this.#empty.set(of, { endedAt: now, tookMs: now - beganAt, isWoken: false });
      this.#options.share.passTurn(of);
    }
  }

  /** Longest wait, in ms, until {@link further} is asked again. */
  get nextClaimWithinMs(): number {
    if (this.#options.destinations.length > 1 && !this.hasRoom()) return LEAST_REST_MS;
    const isAnyApart = this.#excepted().some((each) => !this.isClosed(each));
    return isAnyApart ? MOST_REST_MS : Number.POSITIVE_INFINITY;
  }

  /** Whether {@link further} claims for this destination now, after one of its rows has left. */
  wantsMore(destination: string): boolean {
    return (
      this.#options.destinations.includes(destination) && !this.isClosed(destination) && this.#needsRows(destination)
    );
  }

  /** Whether few rows of a destination wait and the usual claim returns no more. */
  #needsRows(destination: string): boolean {
    const { queues, share, batchSize, destinations } = this.#options;
    const waiting = queues.waitingAt(destination);
    if (!this.#claimsAlone(destination)) {
      const enough = batchSize / (8 * Math.max(1, this.#returnedAt.size - 1));
      return destinations.length > 1 && waiting <= enough && !this.hasRoom() && this.#isRested(destination);
    }
    if (waiting > this.#sought(destination) / 2 || this.#options.releases.overflowAt(destination)) return false;
    if (this.#isUnhealthy(destination)) {
      const claimedAt = this.#claimedAt.get(destination) ?? Number.NEGATIVE_INFINITY;
      if (this.#options.clock.monotonic() < claimedAt + UNHEALTHY_REST_MS) return false;
      if (waiting === 0 && !share.mayBegin(destination)) return false;
    }
    return this.#isRested(destination);
  }

  /** Destinations apart, and those of which a claim has returned rows lately. */
  #active(): readonly string[] {
    const since = this.#options.clock.monotonic() - ACTIVE_MS;
    return this.#options.destinations.filter((each) => {
      if (this.isClosed(each)) return false;
      return (this.#returnedAt.get(each) ?? Number.NEGATIVE_INFINITY) >= since || this.#isApart(each);
    });
  }

  /** Whether a claim of its own may be made: none is running, and none has just found nothing. */
  #isRested(destination: string): boolean {
    if (this.#running.has(destination)) return false;
    const empty = this.#empty.get(destination);
    return empty === undefined || this.#options.clock.monotonic() >= empty.endedAt + restMs(empty);
  }

  /** Rows of a destination apart that this process holds. */
  #budget(apart: string): number {
    const { share, batchSize } = this.#options;
    const most = this.#mostWaiting(apart);
    if (!this.#isUnhealthy(apart)) return most;
    const soon = Math.min(Math.ceil(share.perSecond(apart) / 4), Math.ceil(batchSize / 2));
    return Math.min(most, Math.max(LEAST_BUDGET, soon));
  }

  /** More are claimed when half of these wait: as many as usual where its limits hold nothing up by now. */
  #sought(apart: string): number {
    const budget = this.#budget(apart);
    return budget === Number.POSITIVE_INFINITY ? this.#options.batchSize : budget;
  }

  /** Rows of a claim for a destination apart. */
  #ownLimit(apart: string): number {
    const { queues, batchSize } = this.#options;
    const free = this.#mostWaiting(apart) - queues.waitingAt(apart);
    return Math.max(1, Math.min(this.#budget(apart), free, batchSize));
  }

  #mostWaiting(destination: string): number {
    return Math.max(1, this.#rowsWanted(destination) ?? Number.POSITIVE_INFINITY);
  }

  #rowsWanted(destination: string): number | undefined {
    const { gates, share } = this.#options;
    // A function, since few calls need it: reading the clock for each would cost a tenth of the poller's time.
    return gates.rowsWanted(destination, () => share.perSecond(destination));
  }

  /** Excluded from the usual claim. */
  #excepted(): readonly string[] {
    return this.#options.destinations.filter((each) => this.isClosed(each) || this.#isApart(each));
  }

  #isApart(destination: string): boolean {
    return this.#claimsAlone(destination) || this.#isStalled(destination);
  }

  /** Whether rows wait for slow deliveries: more rows would only wait with them. */
  #isStalled(destination: string): boolean {
    const { queues, share } = this.#options;
    return queues.waitingAt(destination) > 0 && share.isStalled(destination) && !share.mayBegin(destination);
  }

  /** Unhealthy, next to others. */
  #isUnhealthy(destination: string): boolean {
    const { share } = this.#options;
    return share.isShared && share.isUnhealthy(destination);
  }

  #claimsAlone(destination: string): boolean {
    return this.#isUnhealthy(destination) || this.#isFull(destination);
  }

  /**
   * From when as many rows wait as may, until less than half as many do and a claim of its own has returned the last
   * due ones: else the next usual claim would return many more than may wait, only for them to be released. Always
   * where a single one may wait, a probe. And for a while after rows were released: rows behind one of their key wait
   * at that row's destination, whatever the claims of their own return.
   */
  #isFull(destination: string): boolean {
    const most = this.#mostWaiting(destination);
    const waiting = this.#options.queues.waitingAt(destination);
    if (most === 1 || this.#wasOverfull(destination)) return true;
    if (waiting >= most) {
      if (!this.#full.has(destination)) this.#full.set(destination, true);
    } else if (waiting < most / 2 && this.#full.get(destination) !== true) {
      this.#full.delete(destination);
    }
    return this.#full.has(destination);
  }

  #wasOverfull(destination: string): boolean {
    const at = this.#overfullAt.get(destination) ?? Number.NEGATIVE_INFINITY;
    return this.#options.clock.monotonic() - at < OVERFULL_MS;
  }

  #only(destination: string): ClaimScope {
    const { queues, gates, destinations } = this.#options;
    const exceptIds = gates.probed(destination);
    // Rows of other keys show more about an unhealthy one. Where there are limits, the next rows are as good as any; but
    // those behind a row that waits elsewhere would only wait with it, until they were released and claimed again.
    const isWaitedFor = (each: string) =>
      each === destination ? this.#isUnhealthy(each) : this.isClosed(each) || this.#claimsAlone(each);
    return {
      name: ownScope(destination),
      which: "only",
      destinations: [destination],
      ...(exceptIds.length === 0 ? {} : { exceptIds }),
      exceptKeys: destinations.filter(isWaitedFor).flatMap((each) => [...queues.keysAt(each)]),
    };
  }

  #allBut(destinations: readonly string[]): ClaimScope {
    const { queues } = this.#options;
    return {
      name: `all but ${[...destinations].sort().join(", ")}`,
      which: "except",
      destinations,
      // Rows behind one of their key that waits for such a destination would only wait with it.
      exceptKeys: destinations.flatMap((destination) => [...queues.keysAt(destination)]),
    };
  }
}

function ownScope(destination: string): string {
  return `only ${destination}`;
}

/** Claims for whose time the rows that wait must last. */
const CLAIMS_AHEAD = 4;
/** A database plans its claim for each limit. */
const BATCH_PARTS = [8, 4, 2];
/** The destinations without recently claimed rows, and rows without a destination. */
const OTHERS = "?";
const ACTIVE_MS = 5000;
/** Concurrent claims of single destinations. */
const MOST_OWN_CLAIMS = 2;
const LEAST_BUDGET = 2;
const OVERFULL_MS = 1000;
/**
 * Pause between claims for an unhealthy destination. Deliveries that fail at once, as without a broker connection, would
 * use all CPU for its backlog, thousands a second, and delay single messages of the others.
 */
const UNHEALTHY_REST_MS = 50;
const LEAST_REST_MS = 20;
const MOST_REST_MS = 100;

/** A claim that found nothing. */
interface EmptyClaim {
  /** Monotonic ms. */
  readonly endedAt: number;
  readonly tookMs: number;
  /** Rows were added since. */
  isWoken: boolean;
}

/** Ms from an empty claim to the next: empty claims take at most a third of the time, half of it when rows arrive. */
function restMs({ tookMs, isWoken }: EmptyClaim): number {
  if (isWoken) return tookMs;
  return Math.max(LEAST_REST_MS, Math.min(10 * tookMs, MOST_REST_MS), 2 * tookMs);
}

import type { MessageId } from "../../model/rows.ts";
import type { ClaimScope } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";
import type { FairShare } from "./fairShare.ts";
import type { KeyLanes } from "./keyQueues.ts";

/** A claim beside the usual one. */
export interface FurtherClaim {
  readonly scope: ClaimScope;
  /** Most rows. */
  readonly limit: number;
  /** To be told when it has ended, and how many rows it returned; undefined when it failed. */
  readonly ended: (rows: number | undefined) => void;
}

export interface ClaimScopesOptions {
  readonly lanes: KeyLanes;
  readonly share: FairShare;
  /** The names of all. */
  readonly destinations: readonly string[];
  /** `outbox.batchSize`. */
  readonly batchSize: number;
  /** Most bytes of the payloads of one claim, but for its last row. */
  readonly claimBytes: number;
  /** Rows of a destination that this process should hold at most: 0 where it is closed, undefined for any number. */
  readonly rowsWanted: (destination: string) => number | undefined;
  /** Rows of a destination that are not to be claimed while there are others. */
  readonly probed: (destination: string) => readonly MessageId[];
  /** Whether rows of an overfull destination are on their way back to the database: a claim of its own would see nothing of them. */
  readonly isGivingBack: (destination: string) => boolean;
  /** There are no others. */
  readonly forgetProbed: (destination: string) => void;
  readonly clock: Clock;
}

/**
 * Which rows to claim, so that those of a destination without room stay in the database and keep nobody from the rows behind them:
 *
 * - The usual claim takes the next rows in order, but those of destinations that are closed or apart: ill, stalled, or with as many rows waiting as there may be.
 * - A destination apart has claims of its own: an ill one for as many rows as it gets through in a quarter of a second, with a rest between them, any for
 *   no more than may wait. Beside deliveries that stall, more rows are claimed when one of them has ended.
 * - While enough rows wait, and hardly any of them are those of some destination, it has claims of its own as well; and a claim looks past the rows
 *   of all destinations that had some lately, for any others.
 * - A closed one takes part in no claim.
 *
 * Rows that no route matches are among the others of every claim.
 */
export class ClaimScopes {
  readonly #options: ClaimScopesOptions;
  /** When a claim last returned a row of a destination. */
  readonly #metAt = new Map<string, number>();
  /** When the last claim for the rows of a destination alone ended. */
  readonly #claimedAt = new Map<string, number>();
  /** Claims beside the usual one that have not ended, by whose they are. */
  readonly #underWay = new Map<string, UnderWay>();
  /** Those that found nothing. */
  readonly #inVain = new Map<string, InVain>();
  /** Destinations at which as many rows waited as may; with true where the last claim of their own since then was full. */
  readonly #full = new Map<string, boolean>();

  /** When rows of a destination last had to be given back. */
  readonly #overfullAt = new Map<string, number>();

  constructor(options: ClaimScopesOptions) {
    this.#options = options;
  }

  /** A claim returned a row of this destination. */
  met(destination: string): void {
    this.#metAt.set(destination, this.#options.clock.monotonic());
  }

  /** Rows have come: claims that found none are made again soon. */
  wake(): void {
    for (const inVain of this.#inVain.values()) inVain.isWoken = true;
  }

  /** Whether a destination takes part in no claim. */
  isClosed(destination: string): boolean {
    return this.#options.rowsWanted(destination) === 0;
  }

  /** Name of the scope in which the rows of a destination are claimed; undefined for the usual one. */
  scopeOf(destination: string): string | undefined {
    return this.#claimsAlone(destination) ? ownScope(destination) : undefined;
  }

  /** The usual claim is made while half of the last one still waits, so that its round trip costs no delivery time. */
  hasRoom(): boolean {
    const { lanes, batchSize, claimBytes } = this.#options;
    let rows = lanes.waiting;
    let bytes = lanes.bytesWaiting;
    for (const destination of this.#excepted()) {
      rows -= lanes.waitingAt(destination);
      bytes -= lanes.bytesWaitingAt(destination);
    }
    return rows <= batchSize / 2 && bytes <= claimBytes / 2;
  }

  /** Of the usual claim; undefined for all rows. */
  usual(): ClaimScope | undefined {
    const excepted = this.#excepted();
    return excepted.length === 0 ? undefined : this.#allBut(excepted);
  }

  /** Destinations whose waiting rows are to be given back: closed ones, and those apart at which more wait than they will get through soon. */
  overfull(): readonly string[] {
    const { lanes } = this.#options;
    const overfull = this.#excepted().filter((destination) => {
      const waiting = lanes.waitingAt(destination);
      return waiting > 0 && (this.isClosed(destination) || waiting > 2 * this.#budget(destination));
    });
    for (const destination of overfull) {
      if (!this.isClosed(destination)) this.#overfullAt.set(destination, this.#options.clock.monotonic());
      if (this.#full.has(destination)) this.#full.set(destination, true);
      const underWay = this.#underWay.get(destination);
      if (underWay !== undefined) underWay.missesRows = true;
    }
    return overfull;
  }

  /** What is to be claimed now beside the usual claim, and what is under way: whoever has waited longest comes first, and never are there many. */
  *further(): Iterable<FurtherClaim> {
    const { batchSize } = this.#options;
    const limit = Math.ceil(batchSize / 2);
    const claimedAt = (destination: string) => this.#claimedAt.get(destination) ?? Number.NEGATIVE_INFINITY;
    const hungry = this.#hungry().toSorted((a, b) => claimedAt(a) - claimedAt(b));
    const ownUnderWay = this.#underWay.size - (this.#underWay.has(OTHERS) ? 1 : 0);
    for (const each of hungry.slice(0, MOST_OWN_CLAIMS - ownUnderWay)) {
      yield this.#furtherClaim(each, this.#only(each), this.#isApart(each) ? this.#ownLimit(each) : limit);
    }
    if (this.#looksForOthers())
      yield this.#furtherClaim(OTHERS, this.#allBut([...this.#active(), ...this.#closed()]), limit);
  }

  #hungry(): readonly string[] {
    return this.#active().filter((each) => this.#isHungry(each));
  }

  #looksForOthers(): boolean {
    const { destinations, lanes, batchSize, claimBytes } = this.#options;
    // Such a claim may return any number of rows one after another, of which the database cannot tell where they go.
    const claims = 2 + destinations.length / 2;
    const hasRoomForAny = lanes.waiting <= batchSize * claims && lanes.bytesWaiting <= claimBytes * claims;
    return destinations.length > 1 && hasRoomForAny && !this.hasRoom() && this.#isRested(OTHERS);
  }

  #furtherClaim(of: string, scope: ClaimScope, limit: number): FurtherClaim {
    const { clock } = this.#options;
    const beganAt = clock.monotonic();
    const underWay = { missesRows: false };
    this.#underWay.set(of, underWay);
    const ended = (rows: number | undefined) => {
      this.#underWay.delete(of);
      if (rows === undefined) return;
      const now = clock.monotonic();
      this.#claimedAt.set(of, now);
      if (this.#full.has(of)) this.#full.set(of, rows >= limit || underWay.missesRows);
      if (rows === 0 && scope.exceptIds !== undefined) this.#options.forgetProbed(of);
      if (rows > 0) this.#inVain.delete(of);
      else this.#inVain.set(of, { endedAt: now, tookMs: now - beganAt, isWoken: false });
    };
    return { scope, limit, ended };
  }

  /** Longest wait, in ms, until {@link further} is asked again. */
  get nextClaimWithinMs(): number {
    if (this.#options.destinations.length > 1 && !this.hasRoom()) return LEAST_REST_MS;
    return this.#apart().length > 0 ? MOST_REST_MS : Number.POSITIVE_INFINITY;
  }

  /** Whether a destination, a row of which has just left, is one for whose rows {@link further} claims now. */
  wantsMore(destination: string): boolean {
    return (
      this.#options.destinations.includes(destination) && !this.isClosed(destination) && this.#isHungry(destination)
    );
  }

  /** Whether few rows of a destination wait, and the usual claim does not get more. */
  #isHungry(destination: string): boolean {
    const { lanes, share, batchSize, destinations } = this.#options;
    const waiting = lanes.waitingAt(destination);
    if (!this.#claimsAlone(destination)) {
      const enough = batchSize / (8 * Math.max(1, this.#metAt.size - 1));
      return destinations.length > 1 && waiting <= enough && !this.hasRoom() && this.#isRested(destination);
    }
    if (waiting > this.#sought(destination) / 2 || this.#options.isGivingBack(destination)) return false;
    if (share.isIll(destination)) {
      const claimedAt = this.#claimedAt.get(destination) ?? Number.NEGATIVE_INFINITY;
      if (this.#options.clock.monotonic() < claimedAt + ILL_REST_MS) return false;
      if (waiting === 0 && !share.mayBegin(destination)) return false;
    }
    return this.#isRested(destination);
  }

  /** Destinations apart, and those of which a claim has returned rows lately. */
  #active(): readonly string[] {
    const since = this.#options.clock.monotonic() - ACTIVE_MS;
    return this.#options.destinations.filter((each) => {
      if (this.isClosed(each)) return false;
      return (this.#metAt.get(each) ?? Number.NEGATIVE_INFINITY) >= since || this.#isApart(each);
    });
  }

  /** Whether a claim of its own may be made: none is running, and none has just found nothing. */
  #isRested(destination: string): boolean {
    if (this.#underWay.has(destination)) return false;
    const inVain = this.#inVain.get(destination);
    return inVain === undefined || this.#options.clock.monotonic() >= inVain.endedAt + restMs(inVain);
  }

  /** Rows of a destination apart that this process holds. */
  #budget(apart: string): number {
    const { share, batchSize } = this.#options;
    const most = this.#mostWaiting(apart);
    if (!share.isIll(apart)) return most;
    const soon = Math.min(Math.ceil(share.perSecond(apart) / 4), Math.ceil(batchSize / 2));
    return Math.min(most, Math.max(LEAST_BUDGET, soon));
  }

  /** More rows are claimed when half of these wait. Where its limit lets everything through by now, any number may wait: then as many as for the usual claim. */
  #sought(apart: string): number {
    const budget = this.#budget(apart);
    return budget === Number.POSITIVE_INFINITY ? this.#options.batchSize : budget;
  }

  /** Rows of a claim for a destination apart. */
  #ownLimit(apart: string): number {
    const { lanes, batchSize } = this.#options;
    const free = this.#mostWaiting(apart) - lanes.waitingAt(apart);
    return Math.max(1, Math.min(this.#budget(apart), free, batchSize));
  }

  #mostWaiting(destination: string): number {
    return Math.max(1, this.#options.rowsWanted(destination) ?? Number.POSITIVE_INFINITY);
  }

  #closed(): readonly string[] {
    return this.#options.destinations.filter((each) => this.isClosed(each));
  }

  #apart(): readonly string[] {
    return this.#options.destinations.filter((each) => !this.isClosed(each) && this.#isApart(each));
  }

  /** From the usual claim. */
  #excepted(): readonly string[] {
    return this.#options.destinations.filter((each) => this.isClosed(each) || this.#isApart(each));
  }

  #isApart(destination: string): boolean {
    return this.#claimsAlone(destination) || this.#isStalled(destination);
  }

  /** Whether rows wait for deliveries that take long: more of them would only wait with them. */
  #isStalled(destination: string): boolean {
    const { lanes, share } = this.#options;
    return lanes.waitingAt(destination) > 0 && share.isStalled(destination) && !share.mayBegin(destination);
  }

  #claimsAlone(destination: string): boolean {
    return this.#options.share.isIll(destination) || this.#isFull(destination);
  }

  /**
   * From when as many rows wait as may, until less than half as many do and a claim of its own has met the last ones that are due: else the next usual
   * claim would return many more than may wait, only for them to be given back. Always where a single one may wait: a probe. And for a while after rows
   * were given back: those of a key come to wait at another destination than their own, whatever the claims of that one find.
   */
  #isFull(destination: string): boolean {
    const most = this.#mostWaiting(destination);
    const waiting = this.#options.lanes.waitingAt(destination);
    if (most === 1 || this.#wasOverfull(destination)) return true;
    if (waiting >= most) {
      if (!this.#full.has(destination)) this.#full.set(destination, true);
    } else if (waiting < most / 2 && this.#full.get(destination) !== true) {
      this.#full.delete(destination);
    }
    return this.#full.has(destination);
  }

  #wasOverfull(destination: string): boolean {
    const at = this.#overfullAt.get(destination);
    if (at === undefined) return false;
    if (this.#options.clock.monotonic() - at < OVERFULL_MS) return true;
    this.#overfullAt.delete(destination);
    return false;
  }

  #only(destination: string): ClaimScope {
    const { lanes, share, probed, destinations } = this.#options;
    const exceptIds = probed(destination);
    // Rows of other keys tell more of one that is ill. Where there are limits the next rows are as good as any; but those behind a row that waits elsewhere
    // would only wait with it, until they were given back and claimed again.
    const isWaitedFor = (each: string) =>
      each === destination ? share.isIll(each) : this.isClosed(each) || this.#claimsAlone(each);
    return {
      name: ownScope(destination),
      which: "only",
      destinations: [destination],
      ...(exceptIds.length === 0 ? {} : { exceptIds }),
      exceptKeys: destinations.filter(isWaitedFor).flatMap((each) => [...lanes.keysAt(each)]),
    };
  }

  #allBut(destinations: readonly string[]): ClaimScope {
    const { lanes } = this.#options;
    return {
      name: `all but ${[...destinations].sort().join(", ")}`,
      which: "except",
      destinations,
      // Rows behind those of a key that waits for such a destination would only wait with it.
      exceptKeys: destinations.flatMap((destination) => [...lanes.keysAt(destination)]),
    };
  }
}

function ownScope(destination: string): string {
  return `only ${destination}`;
}

/** Stands for the destinations of which no claim has returned rows lately, and for rows without one. */
const OTHERS = "?";
const ACTIVE_MS = 5000;
/** Claims of single destinations at a time. */
const MOST_OWN_CLAIMS = 2;
const LEAST_BUDGET = 2;
const OVERFULL_MS = 1000;
/**
 * From the end of a claim for an ill destination to the next one. Deliveries that fail at once, as while there is no connection to a broker, would go
 * through its backlog as fast as the processor lets them, thousands a second, and single messages of the others would wait for the processor.
 */
const ILL_REST_MS = 50;
const LEAST_REST_MS = 20;
const MOST_REST_MS = 100;

interface UnderWay {
  /** Rows were given back that it does not see. */
  missesRows: boolean;
}

/** A claim that found nothing. */
interface InVain {
  /** Monotonic ms. */
  readonly endedAt: number;
  readonly tookMs: number;
  /** Rows have come since. */
  isWoken: boolean;
}

/** From the end of a claim that found nothing to the next one, in ms. Such claims take a third of the time at most, or half of it where rows come. */
function restMs({ tookMs, isWoken }: InVain): number {
  if (isWoken) return tookMs;
  return Math.max(LEAST_REST_MS, Math.min(10 * tookMs, MOST_REST_MS), 2 * tookMs);
}

import type { Clock } from "../ports/runtime.ts";
import type { ClaimScope } from "../ports/store.ts";
import type { FairShare } from "./fairShare.ts";
import type { KeyLanes } from "./keyLanes.ts";

/** A claim beside the usual one. */
export interface FurtherClaim {
  readonly scope: ClaimScope;
  /** Most rows. */
  readonly limit: number;
  /** To be told how many rows it returned. */
  readonly returned: (rows: number) => void;
}

export interface ClaimScopesOptions {
  readonly lanes: KeyLanes;
  readonly share: FairShare;
  /** How many destinations there are. */
  readonly destinations: number;
  /** `outbox.batchSize`. */
  readonly batchSize: number;
  readonly clock: Clock;
}

/**
 * Which rows to claim, so that those of a destination without room stay in the database and keep nobody from the rows behind them:
 *
 * - The usual claim takes the next rows in order, but those of ill destinations.
 * - An ill destination has claims of its own, for as many rows as it gets through in a quarter of a second.
 * - While enough rows wait, and hardly any of them are those of some destination, it has claims of its own as well; and a claim looks past the topics
 *   of all destinations that had rows lately, for any others.
 *
 * Topics tell the database where a row goes. They are learned from the rows that claims return.
 */
export class ClaimScopes {
  readonly #options: ClaimScopesOptions;
  readonly #topics = new Map<string, Set<string>>();
  /** When a claim last returned a row of a destination. */
  readonly #metAt = new Map<string, number>();
  /** When the last claim for the rows of a destination alone ended. */
  readonly #claimedAt = new Map<string, number>();
  /** When one that found nothing is made again. */
  readonly #restsUntil = new Map<string, number>();

  constructor(options: ClaimScopesOptions) {
    this.#options = options;
  }

  /** A claim returned a row. */
  learn(destination: string, topic: string | null): void {
    if (this.#options.destinations < 2 || topic === null) return;
    let topics = this.#topics.get(destination);
    if (topics === undefined) {
      topics = new Set();
      this.#topics.set(destination, topics);
    }
    this.#metAt.set(destination, this.#options.clock.monotonic());
    topics.add(topic);
    const [oldest] = topics;
    if (topics.size > MOST_TOPICS && oldest !== undefined) topics.delete(oldest);
  }

  /** Name of the scope in which the rows of a destination are claimed; undefined for the usual one. */
  scopeOf(destination: string): string | undefined {
    return this.#options.share.isIll(destination) ? ownScope(destination) : undefined;
  }

  /** The usual claim is made while half of the last one still waits, so that its round trip costs no delivery time. */
  hasRoom(): boolean {
    const { lanes, batchSize } = this.#options;
    const ofIll = this.#ill().reduce((rows, destination) => rows + lanes.waitingAt(destination), 0);
    return lanes.waiting - ofIll <= batchSize / 2;
  }

  /** Of the usual claim; undefined for all rows. */
  usual(): ClaimScope | undefined {
    const ill = this.#ill();
    return ill.length === 0 ? undefined : this.#allBut(ill);
  }

  /** Ill destinations at which more rows wait than they will get through soon. */
  overfull(): readonly string[] {
    return this.#ill().filter(
      (destination) => this.#options.lanes.waitingAt(destination) > 2 * this.#budget(destination),
    );
  }

  /** What is to be claimed now beside the usual claim: whoever has waited longest comes first, and no pass takes long. */
  *further(): Iterable<FurtherClaim> {
    const { batchSize, share } = this.#options;
    const limit = Math.ceil(batchSize / 2);
    const claimedAt = (destination: string) => this.#claimedAt.get(destination) ?? Number.NEGATIVE_INFINITY;
    const hungry = this.#hungry().toSorted((a, b) => claimedAt(a) - claimedAt(b));
    for (const each of hungry.slice(0, MOST_OWN_CLAIMS)) {
      yield this.#furtherClaim(each, this.#only(each), share.isIll(each) ? this.#budget(each) : limit);
    }
    if (this.#looksForOthers()) yield this.#furtherClaim(OTHERS, this.#allBut(this.#active()), limit);
  }

  /** Whether {@link further} claims anything now. */
  wantsFurther(): boolean {
    return this.#hungry().length > 0 || this.#looksForOthers();
  }

  #hungry(): readonly string[] {
    return this.#active().filter((each) => this.#isHungry(each));
  }

  #looksForOthers(): boolean {
    return this.#options.destinations > 1 && !this.hasRoom() && this.#isRested(OTHERS);
  }

  #furtherClaim(of: string, scope: ClaimScope, limit: number): FurtherClaim {
    const { clock } = this.#options;
    const beganAt = clock.monotonic();
    const returned = (rows: number) => {
      const now = clock.monotonic();
      this.#claimedAt.set(of, now);
      if (rows > 0) this.#restsUntil.delete(of);
      else
        this.#restsUntil.set(of, now + Math.min(Math.max(LEAST_REST_MS, REST_FACTOR * (now - beganAt)), MOST_REST_MS));
    };
    return { scope, limit, returned };
  }

  /** Longest wait, in ms, until {@link further} is asked again. */
  get nextClaimWithinMs(): number {
    if (this.#options.destinations < 2) return Number.POSITIVE_INFINITY;
    if (!this.hasRoom()) return LEAST_REST_MS;
    return this.#ill().length > 0 ? MOST_REST_MS : Number.POSITIVE_INFINITY;
  }

  /** Whether a destination, a row of which has just left, is one for whose rows {@link further} claims now. */
  wantsMore(destination: string): boolean {
    return this.#options.destinations > 1 && this.#isHungry(destination);
  }

  /** Whether few rows of a destination wait, and the usual claim does not get more. */
  #isHungry(destination: string): boolean {
    const { lanes, share, batchSize } = this.#options;
    const waiting = lanes.waitingAt(destination);
    if (!share.isIll(destination)) {
      const enough = batchSize / (8 * Math.max(1, this.#topics.size - 1));
      return waiting <= enough && !this.hasRoom() && this.#isRested(destination);
    }
    if (waiting > this.#budget(destination) / 2 || (waiting === 0 && !share.mayBegin(destination))) return false;
    return this.#isRested(destination);
  }

  /** Ill destinations, and those of which a claim has returned rows lately. */
  #active(): readonly string[] {
    const { share, clock } = this.#options;
    const since = clock.monotonic() - ACTIVE_MS;
    return [...this.#metAt].flatMap(([each, at]) => (at >= since || share.isIll(each) ? [each] : []));
  }

  #isRested(destination: string): boolean {
    return this.#options.clock.monotonic() >= (this.#restsUntil.get(destination) ?? Number.NEGATIVE_INFINITY);
  }

  /** Rows of an ill destination that this process holds. */
  #budget(ill: string): number {
    const { share, batchSize } = this.#options;
    return Math.max(LEAST_BUDGET, Math.min(Math.ceil(share.perSecond(ill) / 4), Math.ceil(batchSize / 2)));
  }

  #ill(): readonly string[] {
    return [...this.#topics.keys()].filter((destination) => this.#options.share.isIll(destination));
  }

  #only(destination: string): ClaimScope {
    const { lanes } = this.#options;
    return {
      name: ownScope(destination),
      which: "only",
      topics: [...(this.#topics.get(destination) ?? [])],
      exceptKeys: [...lanes.keysAt(destination)],
    };
  }

  #allBut(destinations: readonly string[]): ClaimScope {
    const { lanes } = this.#options;
    return {
      name: `all but ${[...destinations].sort().join(", ")}`,
      which: "except",
      topics: destinations.flatMap((destination) => [...(this.#topics.get(destination) ?? [])]),
      // Rows behind those of a key that waits for such a destination would only wait with it.
      exceptKeys: destinations.flatMap((destination) => [...lanes.keysAt(destination)]),
    };
  }
}

function ownScope(destination: string): string {
  return `only ${destination}`;
}

/** Stands for the topics that no claim has returned lately. */
const OTHERS = "?";
const ACTIVE_MS = 5000;
/** Claims of single destinations in one pass. */
const MOST_OWN_CLAIMS = 2;
/** Topics that are remembered per destination: what is forgotten is claimed, given back, and learned again. */
const MOST_TOPICS = 1000;
const LEAST_BUDGET = 2;
/** After a claim that found nothing: ten times as long as it took, within these bounds. */
const REST_FACTOR = 10;
const LEAST_REST_MS = 20;
const MOST_REST_MS = 100;

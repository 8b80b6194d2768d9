import { NO_DESTINATION } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";
import type { DestinationGates } from "../destinations/gates.ts";
import type { FairShare } from "./fairShare.ts";
import type { KeyQueues } from "./keyQueues.ts";

interface ClaimRoomsOptions {
  readonly queues: KeyQueues;
  readonly share: FairShare;
  readonly gates: Pick<DestinationGates, "rowsWanted">;
  readonly destinations: readonly string[];
  /** `outbox.batchSize`. */
  readonly batchSize: number;
  /** Most bytes of the payloads of one claim, except its last row. */
  readonly claimBytes: number;
  readonly clock: Clock;
}

/**
 * How many rows each destination has room for: what it delivers soon, less what waits for it here. A destination that
 * is paused, open or full has none and is not asked, so its rows stay in the database and delay no others.
 */
export class ClaimRooms {
  readonly #options: ClaimRoomsOptions;
  /** When an unhealthy destination was last asked; monotonic ms. */
  readonly #askedAt = new Map<string, number>();
  /** Deliveries that began during the last claim. */
  #begunDuringClaim = 0;

  constructor(options: ClaimRoomsOptions) {
    this.#options = options;
  }

  /** Names that no process alive has configured: rows that are pinned to them are claimed to die. */
  unknown: readonly string[] = [];

  /** The room of each destination that has some, the emptiest first. */
  all(): ReadonlyMap<string, number> {
    const { destinations, queues } = this.#options;
    const rooms: [string, number][] = [];
    for (const destination of destinations) {
      const room = this.of(destination);
      if (room > 0) rooms.push([destination, room]);
    }
    rooms.sort(([a], [b]) => queues.waitingAt(a) - queues.waitingAt(b));
    // Rows without a destination are claimed to die.
    const others = [NO_DESTINATION, ...this.unknown].map((each) => [each, this.limit] as const);
    return new Map(rooms.length === 0 ? [] : [...rooms, ...others]);
  }

  /** Destinations that have no room only because enough of their rows wait here. */
  get busy(): ReadonlySet<string> {
    const { destinations, queues } = this.#options;
    return new Set(
      destinations.filter((each) => queues.waitingAt(each) > 0 && !this.isLimited(each) && this.of(each) === 0),
    );
  }

  /** The destinations of a claim that begins now. */
  asked(destinations: Iterable<string>): void {
    const now = this.#options.clock.monotonic();
    for (const destination of destinations) if (this.#isUnhealthy(destination)) this.#askedAt.set(destination, now);
  }

  /** A claim has ended. @param begun deliveries that have begun meanwhile */
  claimed(begun: number): void {
    this.#begunDuringClaim = begun;
  }

  /** Whether a destination is paused, open or at its limits: no row of it is claimed. */
  isClosed(destination: string): boolean {
    return this.#rowsWanted(destination) === 0;
  }

  /** Whether no destination is held up. */
  areFree(): boolean {
    return this.#options.destinations.every(
      (each) => this.#rowsWanted(each) === undefined && !this.#isUnhealthy(each) && !this.#isStalled(each),
    );
  }

  /**
   * Most rows of a claim: what is delivered soon, rather than all of `outbox.batchSize`. Rows that wait here keep their
   * keys from other replicas. All of it if rows wait beside free slots, mostly behind others of their keys: the next
   * rows may be more of those.
   */
  get limit(): number {
    const { queues, share, batchSize } = this.#options;
    if (share.hasSlot && queues.waiting > 0) return batchSize;
    const soon = Math.max(2 * share.concurrency, CLAIMS_AHEAD * this.#begunDuringClaim);
    const part = BATCH_PARTS.find((each) => soon <= batchSize / each) ?? 1;
    return Math.ceil(batchSize / part);
  }

  /**
   * The rows to claim for a destination now; 0 while enough wait. Claims run beside settlements and deliveries, which must
   * not run out of rows meanwhile: so the next one begins while half of a claim waits, or all of it if deliveries are fast.
   */
  of(destination: string): number {
    const { queues, share, claimBytes, clock } = this.#options;
    const { limit } = this;
    const most = Math.min(limit, this.#cap(destination));
    const waiting = queues.waitingAt(destination);
    if (most === 0 || queues.bytesWaitingAt(destination) > claimBytes / 2 || this.#isStalled(destination)) return 0;
    if (this.#isUnhealthy(destination)) {
      const askedAt = this.#askedAt.get(destination) ?? Number.NEGATIVE_INFINITY;
      if (clock.monotonic() < askedAt + UNHEALTHY_REST_MS) return 0;
      if (waiting === 0 && !share.mayBegin(destination)) return 0;
    }
    if (most < limit) return waiting > most / 2 ? 0 : Math.ceil(most - waiting);
    const enough = Math.min(Math.max(limit / 2, CLAIMS_AHEAD * this.#begunDuringClaim), limit);
    return waiting > enough ? 0 : limit;
  }

  /** Whether its limits or its trouble let few rows through. */
  isLimited(destination: string): boolean {
    return this.#cap(destination) !== Number.POSITIVE_INFINITY;
  }

  /** Whether the waiting rows of a destination go back: it is closed, or many more wait than it lets through. */
  isOverfull(destination: string): boolean {
    return this.#options.queues.waitingAt(destination) > 2 * this.#cap(destination);
  }

  /** Most rows of a destination that wait here, as its limits or its trouble let few through; infinite without either. */
  #cap(destination: string): number {
    const wanted = this.#rowsWanted(destination) ?? Number.POSITIVE_INFINITY;
    if (!this.#isUnhealthy(destination)) return wanted;
    return Math.min(wanted, Math.max(LEAST_ROOM, Math.ceil(this.#options.share.perSecond(destination) / 4)));
  }

  /** Longest wait, in ms, until an unhealthy destination is asked again. */
  get nextWithinMs(): number {
    return this.#options.destinations.some((each) => this.#isUnhealthy(each) && !this.isClosed(each))
      ? MOST_REST_MS
      : Number.POSITIVE_INFINITY;
  }

  #rowsWanted(destination: string): number | undefined {
    const { gates, share } = this.#options;
    // A function, since few calls need it: reading the clock for each would cost a tenth of the poller's time.
    return gates.rowsWanted(destination, () => share.perSecond(destination));
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
}

/** Claims for whose time the rows that wait must last. */
const CLAIMS_AHEAD = 4;
const BATCH_PARTS = [8, 4, 2];
const LEAST_ROOM = 2;
/**
 * Pause between claims for an unhealthy destination. Deliveries that fail at once, as without a broker connection, would
 * use all CPU for its backlog, thousands a second, and delay single messages of the others.
 */
const UNHEALTHY_REST_MS = 50;
const MOST_REST_MS = 100;

import { type Linked, LinkedList } from "../../model/collections.ts";
import type { ClaimedRow } from "../../model/rows.ts";
import type { HeldClaim } from "./claims.ts";

/** What is known of a claimed row until its outcome is written, which may be long after its payload was delivered. */
export interface HeldRow {
  /** The lane of the row ({@link laneOf}), named as its key; null without one. */
  readonly key: string | null;
  readonly claim: HeldClaim;
  readonly destination: string;
  readonly isRetry: boolean;
}

export interface QueuedRow extends HeldRow, Linked {
  readonly row: ClaimedRow;
}

/** The lane of a row: its order holds there. No key has the character between key and destination. */
export function laneOf({ key, messageId }: ClaimedRow, destination: string): string | null {
  return key === null || messageId === undefined ? key : `${key}\0${destination}`;
}

/**
 * Claimed rows waiting for delivery, in a queue per key. The rows of a key leave one at a time, in the order added:
 * `done` makes the next one ready. Rows without a key are ready at once. A row behind another of its key counts at the
 * destination of the first of them, which decides when they proceed.
 */
export class KeyQueues {
  readonly #destinations = new Map<string, DestinationQueue>();
  /** For each key with a row ready or in delivery. */
  readonly #keys = new Map<string, KeyQueue>();
  #waiting = 0;

  get waiting(): number {
    return this.#waiting;
  }

  waitingAt(destination: string): number {
    return this.#destinations.get(destination)?.waiting ?? 0;
  }

  /** Size of their payloads, counting a character as a byte. */
  bytesWaitingAt(destination: string): number {
    return this.#destinations.get(destination)?.bytes ?? 0;
  }

  readyAt(destination: string): number {
    return this.#destinations.get(destination)?.ready.size ?? 0;
  }

  readyDestinations(): readonly string[] {
    const ready: string[] = [];
    for (const [destination, queue] of this.#destinations) if (queue.ready.size > 0) ready.push(destination);
    return ready;
  }

  /** The destination at which rows of a key wait now; undefined if no row of it is ready or in delivery. */
  destinationOf(key: string | null): string | undefined {
    return this.#queueOf(key)?.destination;
  }

  /** Destinations at which rows wait, or have waited. */
  destinations(): readonly string[] {
    return [...this.#destinations.keys()];
  }

  add(entry: QueuedRow): void {
    const { key } = entry;
    const queue = this.#queueOf(key);
    if (queue !== undefined) {
      queue.behind.push(entry);
      queue.bytes += bytesOf(entry);
      this.#count(queue.destination, 1, bytesOf(entry));
      return;
    }
    if (key !== null) this.#keys.set(key, { destination: entry.destination, behind: [], bytes: 0 });
    this.#at(entry.destination).ready.add(entry);
    this.#count(entry.destination, 1, bytesOf(entry));
  }

  take(destination: string): QueuedRow | undefined {
    const queue = this.#destinations.get(destination);
    const entry = queue?.ready.first;
    if (queue === undefined || entry === undefined) return undefined;
    queue.ready.delete(entry);
    this.#count(destination, -1, -bytesOf(entry));
    return entry;
  }

  done(key: string | null): void {
    const queue = this.#queueOf(key);
    if (key === null || queue === undefined) return;
    const next = queue.behind.shift();
    if (next === undefined) {
      this.#keys.delete(key);
      return;
    }
    const rows = 1 + queue.behind.length;
    this.#count(queue.destination, -rows, -queue.bytes);
    queue.destination = next.destination;
    this.#count(queue.destination, rows, queue.bytes);
    queue.bytes -= bytesOf(next);
    this.#at(next.destination).ready.add(next);
  }

  /** The delivery of the key's row failed: removes and returns the rows behind it, which must not overtake it. */
  drop(key: string | null): readonly QueuedRow[] {
    const queue = this.#queueOf(key);
    if (key === null || queue === undefined) return [];
    this.#keys.delete(key);
    this.#count(queue.destination, -queue.behind.length, -queue.bytes);
    return queue.behind;
  }

  /** Removes every row waiting at a destination. Rows in delivery stay, for `done` or `drop`. @returns them in order */
  dropAt(destination: string): readonly QueuedRow[] {
    const at = this.#destinations.get(destination);
    if (at === undefined) return [];
    const dropped = [...at.ready];
    const wereReady = new Set(dropped.map(({ key }) => key));
    for (const [key, queue] of this.#keys) {
      if (queue.destination !== destination) continue;
      dropped.push(...queue.behind.splice(0));
      queue.bytes = 0;
      if (wereReady.has(key)) this.#keys.delete(key);
    }
    this.#waiting -= at.waiting;
    this.#destinations.delete(destination);
    return dropped;
  }

  dropAll(): readonly QueuedRow[] {
    return [...this.#destinations.keys()].flatMap((destination) => this.dropAt(destination));
  }

  #queueOf(key: string | null): KeyQueue | undefined {
    return key === null ? undefined : this.#keys.get(key);
  }

  #count(destination: string, rows: number, bytes: number): void {
    this.#waiting += rows;
    const queue = this.#at(destination);
    queue.waiting += rows;
    queue.bytes += bytes;
  }

  #at(destination: string): DestinationQueue {
    let queue = this.#destinations.get(destination);
    if (queue === undefined) {
      queue = { ready: new LinkedList(), waiting: 0, bytes: 0 };
      this.#destinations.set(destination, queue);
    }
    return queue;
  }
}

interface DestinationQueue {
  /** At most one row of a key is here or in delivery. */
  readonly ready: LinkedList<QueuedRow>;
  /** Those, and the rows behind them and behind what is in delivery. */
  waiting: number;
  /** Of the payloads of all that wait. */
  bytes: number;
}

interface KeyQueue {
  /** Of its first row, which is ready or in delivery. */
  destination: string;
  readonly behind: QueuedRow[];
  /** Of the payloads of those behind. */
  bytes: number;
}

function bytesOf({ row }: QueuedRow): number {
  return row.payload?.length ?? 0;
}

/**
 * Rows going back to the database. Until that is written a claim may return later rows of their keys: they go back too.
 */
export class Releases {
  /** Per key, its rows that go back. */
  readonly #keys = new Map<string, number>();
  /** Per running claim, the keys of rows that have been going back at any time since it began. */
  #keysOfClaims: readonly Set<string>[] = [];
  /**
   * Rows released when a claim returned them. No claim runs until they are pending again: two claims could return later
   * rows of their keys in turns for ever, without a delivery.
   */
  readonly #onArrival = new Set<HeldRow>();

  /** @returns the keys whose rows the claim must not deliver, growing until `claimEnded` is called with them */
  claimBegan(): ReadonlySet<string> {
    const keys = new Set(this.#keys.keys());
    this.#keysOfClaims = [...this.#keysOfClaims, keys];
    return keys;
  }

  claimEnded(keys: ReadonlySet<string>): void {
    this.#keysOfClaims = this.#keysOfClaims.filter((each) => each !== keys);
  }

  /** A row goes back; the row of each call is passed to `settled` later. */
  add({ key }: HeldRow): void {
    if (key === null) return;
    this.#keys.set(key, (this.#keys.get(key) ?? 0) + 1);
    for (const keys of this.#keysOfClaims) keys.add(key);
  }

  addOnArrival(entry: HeldRow): void {
    this.#onArrival.add(entry);
    this.add(entry);
  }

  get holdUpClaims(): boolean {
    return this.#onArrival.size > 0;
  }

  /**
   * A row is settled. If its outcome could not be written, or not yet, claims now return no later row of its key.
   *
   * @param isBack whether it was passed to `add` or `addOnArrival`
   * @returns whether it alone held up claims, which may be made now
   */
  settled(entry: HeldRow, isBack: boolean): boolean {
    if (isBack) this.#isBack(entry);
    return this.#onArrival.delete(entry) && !this.holdUpClaims;
  }

  #isBack({ key }: HeldRow): void {
    if (key === null) return;
    const left = (this.#keys.get(key) ?? 0) - 1;
    if (left > 0) this.#keys.set(key, left);
    else this.#keys.delete(key);
  }
}

import type { ClaimedRow } from "../../model/rows.ts";
import type { ClaimedBatch } from "./leases.ts";

/** A claimed row with the claim it came in. */
export interface LaneRow {
  readonly row: ClaimedRow;
  readonly batch: ClaimedBatch;
  /** Where it goes. */
  readonly destination: string;
}

/**
 * Claimed rows that wait for their delivery. The rows of one key leave one at a time, in the order in which they were added: the next
 * one is ready when `done` was called for the one before. Rows without a key are ready at once.
 *
 * A row behind another one of its key waits at the destination of the first of them, whatever its own: that one decides when it may go on.
 */
export class KeyLanes {
  readonly #queues = new Map<string, Queue>();
  /** Per key with a row ready or in delivery. */
  readonly #lanes = new Map<string, Lane>();
  #waiting = 0;
  #bytesWaiting = 0;

  /** Rows that were added and have not been taken. */
  get waiting(): number {
    return this.#waiting;
  }

  /** What their payloads take, about: a character counts as one. */
  get bytesWaiting(): number {
    return this.#bytesWaiting;
  }

  /** Those that wait at a destination. */
  waitingAt(destination: string): number {
    return this.#queues.get(destination)?.waiting ?? 0;
  }

  /** What the payloads of those take. */
  bytesWaitingAt(destination: string): number {
    return this.#queues.get(destination)?.bytes ?? 0;
  }

  /** Those of them that may be delivered now. */
  readyAt(destination: string): number {
    const queue = this.#queues.get(destination);
    return queue === undefined ? 0 : queue.ready.length - queue.head;
  }

  /** Destinations that a row may be delivered to now. */
  *readyDestinations(): Iterable<string> {
    for (const [destination, queue] of this.#queues) if (queue.head < queue.ready.length) yield destination;
  }

  /** Keys whose first row goes to a destination: it waits, or is in delivery. */
  *keysAt(destination: string): Iterable<string> {
    for (const [key, lane] of this.#lanes) if (lane.destination === destination) yield key;
  }

  add(entry: LaneRow): void {
    const { key } = entry.row;
    const lane = key === null ? undefined : this.#lanes.get(key);
    if (lane !== undefined) {
      lane.behind.push(entry);
      lane.bytes += bytesOf(entry);
      this.#count(lane.destination, 1, bytesOf(entry));
      return;
    }
    if (key !== null) this.#lanes.set(key, { destination: entry.destination, behind: [], bytes: 0 });
    this.#makeReady(entry);
    this.#count(entry.destination, 1, bytesOf(entry));
  }

  /** The next row that may be delivered to a destination now; undefined when there is none. */
  take(destination: string): LaneRow | undefined {
    const queue = this.#queues.get(destination);
    const entry = queue?.ready[queue.head];
    if (queue === undefined || entry === undefined) return undefined;
    queue.head += 1;
    if (queue.head * 2 > queue.ready.length) {
      queue.ready = queue.ready.slice(queue.head);
      queue.head = 0;
    }
    this.#count(destination, -1, -bytesOf(entry));
    return entry;
  }

  /** The row of this key that was taken is finished: the next one of the key is ready. */
  done(key: string | null): void {
    const lane = key === null ? undefined : this.#lanes.get(key);
    if (key === null || lane === undefined) return;
    const next = lane.behind.shift();
    if (next === undefined) {
      this.#lanes.delete(key);
      return;
    }
    const rows = 1 + lane.behind.length;
    this.#count(lane.destination, -rows, -lane.bytes);
    lane.destination = next.destination;
    this.#count(lane.destination, rows, lane.bytes);
    lane.bytes -= bytesOf(next);
    this.#makeReady(next);
  }

  /** The row of this key that was taken did not get through: gives up and returns those behind it, which must not overtake it. */
  drop(key: string | null): readonly LaneRow[] {
    const lane = key === null ? undefined : this.#lanes.get(key);
    if (key === null || lane === undefined) return [];
    this.#lanes.delete(key);
    this.#count(lane.destination, -lane.behind.length, -lane.bytes);
    return lane.behind;
  }

  /** Gives up every row that waits at a destination, in their order per key. Rows in delivery stay; `done` and `drop` may still be called for them. */
  dropAt(destination: string): readonly LaneRow[] {
    const queue = this.#queues.get(destination);
    if (queue === undefined) return [];
    const dropped = queue.ready.slice(queue.head);
    const wereReady = new Set(dropped.map(({ row }) => row.key));
    for (const [key, lane] of this.#lanes) {
      if (lane.destination !== destination) continue;
      dropped.push(...lane.behind.splice(0));
      lane.bytes = 0;
      if (wereReady.has(key)) this.#lanes.delete(key);
    }
    this.#waiting -= queue.waiting;
    this.#bytesWaiting -= queue.bytes;
    this.#queues.delete(destination);
    return dropped;
  }

  /** Gives up every waiting row; see `dropAt`. */
  dropAll(): readonly LaneRow[] {
    return [...this.#queues.keys()].flatMap((destination) => this.dropAt(destination));
  }

  #makeReady(entry: LaneRow): void {
    this.#queueOf(entry.destination).ready.push(entry);
  }

  #count(destination: string, rows: number, bytes: number): void {
    this.#waiting += rows;
    this.#bytesWaiting += bytes;
    const queue = this.#queueOf(destination);
    queue.waiting += rows;
    queue.bytes += bytes;
  }

  #queueOf(destination: string): Queue {
    let queue = this.#queues.get(destination);
    if (queue === undefined) {
      queue = { ready: [], head: 0, waiting: 0, bytes: 0 };
      this.#queues.set(destination, queue);
    }
    return queue;
  }
}

/** What waits at one destination. */
interface Queue {
  /** Rows that may be delivered now, from `head` on. A lane has at most one row here or in delivery. */
  ready: LaneRow[];
  head: number;
  /** Those, and the rows behind them and behind what is in delivery. */
  waiting: number;
  /** Of their payloads. */
  bytes: number;
}

interface Lane {
  /** Of its first row, which is ready or in delivery. */
  destination: string;
  readonly behind: LaneRow[];
  /** Of the payloads of those behind. */
  bytes: number;
}

function bytesOf({ row }: LaneRow): number {
  return row.payload?.length ?? 0;
}

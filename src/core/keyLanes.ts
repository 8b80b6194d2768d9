import type { ClaimedRow } from "../model/rows.ts";
import type { ClaimedBatch } from "./leases.ts";

/** A claimed row with the claim it came in. */
export interface LaneRow {
  readonly row: ClaimedRow;
  readonly batch: ClaimedBatch;
}

/**
 * Claimed rows that wait for their delivery. The rows of one key leave one at a time, in the order in which they were added: the next
 * one is ready when `done` was called for the one before. Rows without a key are ready at once.
 */
export class KeyLanes {
  /** Rows that may be delivered now. A lane has at most one row here or in delivery. */
  #ready: LaneRow[] = [];
  #readyHead = 0;
  /** Per key with a row ready or in delivery: the rows behind it. */
  readonly #behind = new Map<string, LaneRow[]>();
  #waiting = 0;

  /** Rows that were added and have not been taken. */
  get waiting(): number {
    return this.#waiting;
  }

  add(entry: LaneRow): void {
    this.#waiting += 1;
    const { key } = entry.row;
    if (key === null) {
      this.#ready.push(entry);
      return;
    }
    const behind = this.#behind.get(key);
    if (behind !== undefined) {
      behind.push(entry);
      return;
    }
    this.#behind.set(key, []);
    this.#ready.push(entry);
  }

  /** The next row that may be delivered now; undefined when there is none. */
  take(): LaneRow | undefined {
    const entry = this.#ready[this.#readyHead];
    if (entry === undefined) return undefined;
    this.#readyHead += 1;
    if (this.#readyHead * 2 > this.#ready.length) {
      this.#ready = this.#ready.slice(this.#readyHead);
      this.#readyHead = 0;
    }
    this.#waiting -= 1;
    return entry;
  }

  /** The row of this key that was taken is finished: the next one of the key is ready. */
  done(key: string | null): void {
    if (key === null) return;
    const behind = this.#behind.get(key);
    const next = behind?.shift();
    if (next === undefined) this.#behind.delete(key);
    else this.#ready.push(next);
  }

  /** The row of this key that was taken did not get through: gives up and returns those behind it, which must not overtake it. */
  drop(key: string | null): readonly LaneRow[] {
    if (key === null) return [];
    const behind = this.#behind.get(key) ?? [];
    this.#behind.delete(key);
    this.#waiting -= behind.length;
    return behind;
  }

  /** Gives up every waiting row. Rows in delivery stay; `done` and `drop` may still be called for them. */
  dropAll(): readonly LaneRow[] {
    const dropped = this.#ready.slice(this.#readyHead);
    for (const [key, behind] of this.#behind) {
      dropped.push(...behind);
      this.#behind.set(key, []);
    }
    this.#ready = [];
    this.#readyHead = 0;
    this.#waiting = 0;
    return dropped;
  }
}

import type { Done, Reached } from "./calls.ts";
import { heldIn, type Judged } from "./ledger.ts";
import type { MemoryCell, Tables } from "./memoryCell.ts";

interface Moment {
  readonly tables: Tables;
  readonly held: ReadonlySet<string>;
  readonly areBucketsChanged: boolean;
}

/** The database of a cell: it goes away, restarts, and goes back to what it was before its last writes. */
export class Database implements Reached, Judged {
  readonly name: string;
  readonly tables: MemoryCell;
  away: Reached["away"];
  readonly #onDone: (database: Database, call: Done) => void;
  /** After each write; the last one is now. */
  readonly #history: Moment[] = [];
  #starts = 0;
  #version: number;

  /**
   * @param tables as they are at first: it never goes back to before that
   * @param onDone told of each call before its change counts in {@link now} and {@link held}
   */
  constructor(name: string, tables: MemoryCell, onDone: (database: Database, call: Done) => void) {
    this.name = name;
    this.tables = tables;
    this.#onDone = onDone;
    this.#version = tables.version;
    this.#history.push({ tables: tables.tables, held: new Set(), areBucketsChanged: true });
  }

  get #last(): Moment {
    return this.#history.at(-1) as Moment;
  }

  get now(): Tables {
    return this.#last.tables;
  }

  get held(): ReadonlySet<string> {
    return this.#last.held;
  }

  done(call: Done): void {
    this.#onDone(this, call);
    this.changed();
  }

  /** Its tables may have changed. */
  changed(): void {
    if (this.tables.version === this.#version) return;
    this.#version = this.tables.version;
    const { tables } = this.tables;
    const areBucketsChanged = [...tables.buckets].some(([bucket, row]) => this.now.buckets.get(bucket) !== row);
    this.#history.push({ tables, held: heldIn(tables, this.held), areBucketsChanged });
  }

  restart(): void {
    this.#starts += 1;
    this.tables.server = `${this.name}${this.#starts}`;
  }

  /**
   * What it would go back to.
   *
   * @param changes how many of its last changes of buckets are lost
   * @param writes how many other writes before these
   */
  before(changes: number, writes: number): Tables {
    return this.#history[this.#lengthBefore(changes, writes) - 1]?.tables ?? this.now;
  }

  /** A backup is restored, or a standby without the last commits takes over: as {@link before}. */
  restore(changes: number, writes: number): void {
    this.#history.splice(this.#lengthBefore(changes, writes));
    this.tables.tables = this.now;
    this.#version = this.tables.version;
    this.restart();
  }

  #lengthBefore(changes: number, writes: number): number {
    let at = this.#history.length - 1;
    for (let left = changes; left > 0 && at > 0; at -= 1) if (this.#history[at]?.areBucketsChanged) left -= 1;
    return Math.max(1, at + 1 - writes);
  }
}

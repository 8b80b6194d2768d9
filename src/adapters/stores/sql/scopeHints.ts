import type { Clock } from "../../../ports/runtime.ts";
import type { ClaimScope } from "../../../ports/store.ts";
import { higher, lower } from "./positions.ts";
import { Sweeps } from "./sweeps.ts";

/** The table, as a sweep saw it that met no row of these destinations, or of all others. */
export interface SeenTable {
  readonly table: string;
  readonly destinations: readonly string[];
}

/** What a claim of a scope has found. */
export interface ScopeLook {
  /** Where it began. */
  readonly from: string;
  /** The first row of the scope that it met, which is not behind a blocked key. */
  readonly first: string | undefined;
  /** The end of the table, and when it was read: before the claim looked. */
  readonly end?: { readonly position: string; readonly readAt: number } | undefined;
  /** How long the look took, where it began at the mark. */
  readonly sweptMs?: number | undefined;
  /** Where the database can tell whether another look can find more. */
  readonly seen?: SeenTable | undefined;
}

/**
 * Where the claims of one scope start. In front of its rows there may be any number of others, so a scope always has a front to pass: its claims begin at
 * a cursor below which none of its rows was free, and sweep from the mark now and then.
 *
 * The cursor keeps a second behind the rows that were met and the end of the table: positions are taken before they are committed, and a row that appears
 * below the cursor would wait for the next sweep, which is seldom where the front is long. In the first second of a scope nothing is known to be that old,
 * and the cursor keeps at the rows that were met; a sweep at its end finds what has appeared below. Rows of a key that was blocked or left out, and is not any more, wait for a sweep: to look for them at once would mean to sweep all the
 * time.
 */
export class ScopeHints {
  readonly name: string;
  readonly which: ClaimScope["which"];
  readonly #clock: Clock;
  readonly #sweeps: Sweeps;
  #cursor: string | undefined;
  /** The highest position that is known to have been there {@link LAG_MS} ago. */
  #settled: string | undefined;
  /** One that will be. Others are not looked at until then, or none would ever be. */
  #seen: { readonly position: string; readonly at: number } | undefined;
  #foundNothing = false;
  #seenTable: SeenTable | undefined;

  constructor(clock: Clock, { name, which }: Pick<ClaimScope, "name" | "which">) {
    this.#clock = clock;
    this.name = name;
    this.which = which;
    this.#sweeps = new Sweeps(clock, REST_COST_FACTOR);
  }

  /** Where the next claim starts; undefined for a sweep from the mark. */
  get start(): string | undefined {
    const firstSecondIsOver = this.#settled === undefined && !this.#isSettling();
    return firstSecondIsOver || this.#sweeps.isDue() ? undefined : this.#cursor;
  }

  /** Whether the next claim has to read the end of the table, though it is not a sweep: only then can the cursor go on. */
  get wantsEnd(): boolean {
    return this.#foundNothing && !this.#isSettling();
  }

  /** Whether the last claim met no row. */
  get foundNothing(): boolean {
    return this.#foundNothing;
  }

  /** What the last sweep saw, if it met nothing and the next one would only be made for what has changed since: not for the sake of the cursor. */
  get seen(): SeenTable | undefined {
    return this.#settled === undefined ? undefined : this.#seenTable;
  }

  /** Nothing has changed since the last sweep, as it took `tookMs` to find out. */
  sweepIsNeedless(tookMs: number): void {
    this.#sweeps.ended(tookMs);
  }

  /** Remembers what a claim has found. */
  looked({ from, first, end, sweptMs, seen }: ScopeLook): void {
    const front = first ?? higher(from, end?.position ?? this.#seen?.position ?? from);
    this.#settle();
    if (end !== undefined) this.#seen ??= { position: end.position, at: end.readAt };
    if (first !== undefined) this.#seen ??= { position: first, at: this.#clock.monotonic() };
    // After a sweep of more than a second its own end counts.
    this.#settle();
    this.#cursor = this.#settled === undefined ? front : lower(front, this.#settled);
    this.#foundNothing = first === undefined;
    if (sweptMs === undefined) return;
    this.#seenTable = first === undefined ? seen : undefined;
    this.#sweeps.ended(sweptMs);
  }

  /** A row of a key will be free in `delayMs`: look from the mark then. */
  sweepWithin(delayMs: number): void {
    this.#sweeps.sweepWithin(delayMs);
  }

  #settle(): void {
    if (this.#seen === undefined || this.#isSettling()) return;
    this.#settled = higher(this.#seen.position, this.#settled ?? this.#seen.position);
    this.#seen = undefined;
  }

  #isSettling(): boolean {
    return this.#seen !== undefined && this.#clock.monotonic() < this.#seen.at + LAG_MS;
  }
}

/** Longer than it takes from the insert of a row to its commit, mostly. */
const LAG_MS = 1000;
/** Beside a long front a retry may be late, rather than the rows of others. */
const REST_COST_FACTOR = 20;

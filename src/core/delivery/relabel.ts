import type { Log } from "../../ports/runtime.ts";
import type { OutboxStore } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";

interface RelabelOptions {
  readonly store: Pick<OutboxStore, "relabel">;
  /** The hash of the routes of this process. */
  readonly hash: string;
  /** Those of the other processes alive, as the last heartbeat saw them; undefined before the first. */
  readonly others: () => readonly string[] | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * After a change of `routes`: takes the labels from rows that the routes of no process alive chose, so that the present
 * routes decide. While such a process lives its rows go by their labels. One walk over the waiting rows at the start,
 * and one whenever routes of another process are gone, repeated until a walk finds nothing: meanwhile rows may have been
 * in delivery, or locked.
 */
export class Relabel {
  readonly #options: RelabelOptions;
  readonly #startedAt: number;
  #knownHashes: ReadonlySet<string> = new Set();
  #isDue = true;
  #dueAt = Number.NEGATIVE_INFINITY;
  #after: string | null = null;
  #foundRows = 0;

  constructor(options: RelabelOptions) {
    this.#options = options;
    this.#startedAt = options.clock.monotonic();
  }

  get isAlone(): boolean {
    return this.#knownHashes.size === 1;
  }

  /** Takes a step of the walk if one is due. @throws StoreError */
  async pass(): Promise<"again" | "idle"> {
    const { store, hash, clock, log } = this.#options;
    const now = clock.monotonic();
    const others = this.#options.others() ?? (now - this.#startedAt < UNSEEN_MS ? undefined : []);
    if (others === undefined) return "idle";
    const keep = new Set([hash, ...others]);
    if ([...this.#knownHashes].some((known) => !keep.has(known))) [this.#isDue, this.#after] = [true, null];
    this.#knownHashes = keep;
    if (!this.#isDue || now < this.#dueAt) return "idle";
    const { next, found } = await store.relabel([...keep], this.#after, PAGE_ROWS);
    this.#after = next;
    this.#foundRows += found;
    if (next !== null) return "again";
    if (this.#foundRows > 0)
      log.info({ rows: this.#foundRows, routes: hash }, "rows of former routes follow the present routes");
    this.#isDue = this.#foundRows > 0;
    this.#dueAt = now + REPEAT_MS;
    this.#foundRows = 0;
    return "idle";
  }
}

/** A heartbeat that could not be stored for so long is not waited for: its tables may be missing. */
const UNSEEN_MS = 60_000;
const REPEAT_MS = 20_000;
const PAGE_ROWS = 1000;

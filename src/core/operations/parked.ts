import { splitSequence } from "../../model/cellPositions.ts";
import { CellError, cellNames } from "../../model/errors.ts";
import type { DestinationOf, MessageId } from "../../model/rows.ts";
import { compileTopicPattern } from "../../model/topicPattern.ts";
import type { Changed, ReplayStore } from "../../ports/finishedRows.ts";
import type { Cells } from "../../ports/operatorStore.ts";
import type { Log } from "../../ports/runtime.ts";
import type { ParkedFilter, ParkedRow, ParkedStore } from "../../ports/store.ts";
import type { Redact } from "../redaction/redact.ts";
import type { Audit } from "./audit.ts";
import { watchNames } from "./leftOut.ts";
import { inGroup, matcher } from "./reasons.ts";
import { paced, reported } from "./replay.ts";

/** Which parked rows; the fields given are combined with AND. */
export interface ParkedSelection {
  readonly ids?: readonly MessageId[] | undefined;
  /** A pattern, as in `routes`. */
  readonly topic?: string | undefined;
  readonly key?: string | undefined;
  /** Null for rows that no route sends anywhere, which narrows another filter, or all. */
  readonly destination?: string | null | undefined;
  /** Only rows of the group of this reason. */
  readonly reason?: string | undefined;
}

export const MOST_LISTED = 10_000;

/** Whether a change selects rows: by a filter or by `all`, not both. @param all null and false count as absent */
export function saysWhichRows(selection: ParkedSelection, all: unknown): boolean {
  return Object.values(selection).some((field) => field !== undefined && field !== null) !== (all === true);
}

interface ParkedOptions {
  readonly store: ParkedStore;
  readonly replay: Pick<ReplayStore, "untried">;
  /** Undefined without cells. */
  readonly cells?: Pick<Cells, "names" | "watch"> | undefined;
  readonly destinationOf: DestinationOf;
  /** Called after each batch that freed keys: time to wake the pollers. */
  readonly onFreed: () => void;
  readonly redact: Redact;
  readonly audit: Audit;
  readonly log: Log;
  /** Waits `ms` milliseconds, or until the signal aborts, when it may reject with the signal's reason. */
  readonly wait: (ms: number, signal: AbortSignal) => Promise<void>;
}

export function parkedRowShown({
  attempt,
  parkedAt,
  destination: _destination,
  isPinned: _isPinned,
  ...row
}: ParkedRow): object {
  const { sequence } = splitSequence(row.sequence);
  return { ...row, sequence, attempts: attempt, parkedAt: parkedAt?.toISOString() ?? null };
}

/** Lists, retries and discards parked rows in batches by sequence, each in its own short transaction. */
export class Parked {
  readonly #options: ParkedOptions;

  constructor(options: ParkedOptions) {
    this.#options = options;
  }

  /** Parked rows in the order of their sequence. @throws StoreError, or an Error for a bad topic pattern */
  async list(selection: ParkedSelection, limit: number): Promise<readonly ParkedRow[]> {
    const found: ParkedRow[] = [];
    for await (const rows of this.#batches(selection)) {
      found.push(...rows.slice(0, limit - found.length));
      if (found.length >= limit) break;
    }
    return found;
  }

  /**
   * Makes the rows due at once with attempt 0; no faster than the pollers deliver, so that fresh rows do not wait.
   *
   * @returns how many rows are due again, and why one is not, redacted
   * @throws InterruptedError; its cause is the abort reason or the database's error
   */
  async retry(selection: ParkedSelection, by: string, signal: AbortSignal): Promise<Changed> {
    const { store, replay, wait } = this.#options;
    const turn = paced(replay, BATCH_SIZE, wait, signal);
    const about = { log: "parked rows are retried", action: "parked.retry", by };
    return await this.#change(selection, about, signal, async (ids) => {
      await turn(ids);
      return await store.retry(ids, by);
    });
  }

  /** Makes the rows dead, which frees their keys; else as {@link retry}. @param reason put before their `last_error` */
  async discard(selection: ParkedSelection, by: string, reason: string, signal: AbortSignal): Promise<Changed> {
    const { store, redact } = this.#options;
    const [who, why] = [redact(by), redact(reason)];
    const note = `discarded by ${who}: ${why}`;
    const about = { log: "parked rows are discarded", action: "parked.discard", by: who, note };
    return await this.#change(selection, about, signal, (ids) => store.discard(ids, who, why));
  }

  async #change(
    selection: ParkedSelection,
    about: { readonly log: string; readonly action: string; readonly by: string; readonly note?: string },
    signal: AbortSignal,
    change: (ids: readonly MessageId[]) => Promise<Changed>,
  ): Promise<Changed> {
    const { onFreed, redact, cells } = this.#options;
    const filter = inGroup(selection, redact);
    const leftOut = watchNames(cells);
    return await reported({ verb: "changed", filter, ...about }, this.#options, async (add) => {
      let changed = 0;
      for await (const rows of this.#batches(selection)) {
        signal.throwIfAborted();
        const done = await change(rows.map(({ id }) => id));
        changed += done.changed;
        add(done);
        if (done.changed > 0) onFreed();
      }
      const missing = leftOut();
      if (missing.length > 0) requireCells(missing, selection, changed);
    });
  }

  /** Batches that are not empty. A row that is parked again meanwhile does not come twice: its sequence is behind. */
  async *#batches(selection: ParkedSelection): AsyncGenerator<readonly ParkedRow[]> {
    const { ids, topic, key } = selection;
    const isOfTopic = topic === undefined ? () => true : compileTopicPattern(topic);
    const isOfGroup = matcher(selection, this.#options);
    const matches = (row: ParkedRow): boolean =>
      (topic === undefined || (row.topic !== null && isOfTopic(row.topic))) && isOfGroup(row);
    const filter: ParkedFilter = { ids, key };
    let after: string | null = null;
    for (;;) {
      const rows: readonly ParkedRow[] = await this.#options.store.list(filter, after, BATCH_SIZE);
      const matching = rows.filter(matches);
      if (matching.length > 0) yield matching;
      if (rows.length < BATCH_SIZE) return;
      after = rows.at(-1)?.sequence ?? null;
    }
  }
}

const BATCH_SIZE = 1000;

/** @throws CellError if rows may be in a cell that did not answer */
function requireCells(missing: readonly string[], { ids }: ParkedSelection, changed: number): void {
  if (ids !== undefined && changed >= new Set(ids).size) return;
  throw new CellError(
    "unavailable",
    missing,
    `${cellNames(missing)} could not be asked; rows there may be unchanged: repeat it`,
  );
}

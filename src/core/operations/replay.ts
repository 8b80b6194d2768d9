import { deliveryId } from "../../model/deliveries.ts";
import { CellError, errorText, mayPass } from "../../model/errors.ts";
import type { DestinationOf, MessageId } from "../../model/rows.ts";
import type { FinishedRow, ReplayFilter, ReplayPage, ReplayScope, ReplayStore } from "../../ports/finishedRows.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Redact } from "../redaction/redact.ts";
import type { Audit } from "./audit.ts";
import type { InboxReplay } from "./inboxReplay.ts";
import { FailedGroups, inGroup, matcher } from "./reasons.ts";
import { hasFilter, type Moves, NO_FILTER, type ReplayPreview, type ReplayRequest } from "./replayRequest.ts";

export interface ReplayOptions {
  readonly store: Omit<ReplayStore, "receiveAgain">;
  readonly inbox: InboxReplay;
  readonly destinationOf: DestinationOf;
  /** The destinations of the route of a topic; undefined unless they are a list. */
  readonly listOf: (topic: string) => readonly string[] | undefined;
  readonly onMoved: () => void;
  readonly redact: Redact;
  readonly audit: Audit;
  readonly log: Log;
  /** Most rows read, and moved, by one statement. Default 1000. */
  readonly batchSize?: number;
  /** Waits `ms` milliseconds, or until the signal aborts, when it may reject with the signal's reason. */
  readonly wait: (ms: number, signal: AbortSignal) => Promise<void>;
}

/** A replay ended early; `cause` has the reason. A repetition moves the rest, and again what was delivered since. */
export class ReplayInterruptedError extends Error {
  override readonly name = "ReplayInterruptedError";
  /** Rows known to be moved; a batch whose commit was not answered may have been moved too. */
  readonly moved: number;

  constructor(moved: number, cause: unknown) {
    super(`the replay ended early, after ${moved} ${moved === 1 ? "row was" : "rows were"} moved`, { cause });
    this.moved = moved;
  }
}

/** The outbox has no column for the destination of a row: its rows cannot be replayed to another one. */
export class NoDestinationColumnError extends Error {
  override readonly name = "NoDestinationColumnError";

  /** @param remedy the statements that add them */
  constructor(remedy: string) {
    super(
      `the outbox has no columns for another destination: run svc migrate, or these statements, and restart the processes\n      ${remedy}`,
    );
  }
}

/** A destination to add is not in the list of a topic. */
export class NotInListError extends Error {
  override readonly name = "NotInListError";

  constructor(topic: string | null, add: string) {
    super(
      `the topic ${JSON.stringify(topic)} has no route with a list of destinations that names ${JSON.stringify(add)}: add it to that list, or choose other topics`,
    );
  }
}

/** What a replay has done. */
interface Replayed {
  readonly moved: number;
  /** Why a row was not moved, redacted; undefined for none. */
  readonly refusal?: string | undefined;
}

interface ReplayStart {
  /** By default this moment. */
  readonly scope?: ReplayScope | undefined;
  /** A position; null for the beginning. */
  readonly after?: string | null | undefined;
  /** Most rows in a second; null for no cap. */
  readonly perSecond?: number | null | undefined;
}

interface Selection {
  readonly filter: ReplayFilter;
  readonly ids: readonly MessageId[] | undefined;
  readonly matches: (row: FinishedRow) => boolean;
}

/**
 * Moves finished outbox rows, and dead rows of the inbox, back to `pending` (spec, "POST /admin/replay"): in batches in the order of their sequence,
 * each in its own short transaction; no faster than the pollers deliver, so that fresh rows do not wait behind it.
 */
export class Replay {
  readonly #options: ReplayOptions;
  readonly #batchSize: number;

  constructor(options: ReplayOptions) {
    this.#options = options;
    this.#batchSize = options.batchSize ?? DEFAULT_BATCH_SIZE;
  }

  /**
   * Moves every row that is finished now and matches. Count and filter are logged.
   *
   * @param by who requests it, for the log and the history
   * @param signal aborts it between two batches
   * @throws ReplayInterruptedError with the rows moved by then; its cause is the abort reason or the database's error
   */
  async run(request: ReplayRequest, by: string, signal: AbortSignal): Promise<Replayed> {
    this.#require(request);
    const { redact, audit, log } = this.#options;
    const filter = loggedFilter(inGroup(request, redact));
    const note = (end: string) => {
      const detail = `${moved} rows of ${JSON.stringify(filter)}${end}${refusal === undefined ? "" : `; ${othersText(refusal)}`}`;
      return audit.add({ actor: by, action: "replay", target: null, detail });
    };
    let moved = 0;
    let refusal: string | undefined;
    try {
      for await (const batch of this.moves(request, by, {}, signal)) {
        moved += batch.moved;
        refusal ??= batch.refusal && redact(batch.refusal);
      }
    } catch (error) {
      log.warn({ moved, refusal, filter, by, reason: errorText(error) }, "replay ended early");
      await note(", ended early");
      throw new ReplayInterruptedError(moved, error);
    }
    log.info({ moved, refusal, filter, by }, "replay");
    await note("");
    return { moved, refusal };
  }

  /** Marks this moment: what finishes later is not part of the replay. @throws StoreError, or the signal's reason */
  begin(signal: AbortSignal): Promise<ReplayScope> {
    return this.persistently(() => this.#options.store.begin(), signal);
  }

  /**
   * Moves rows, or adds deliveries, batch by batch. Begun again from any of its positions, with the same scope, it
   * repeats nothing: rows that it moved are not finished, or finished after the scope, and messages name what was added.
   *
   * @returns after each batch how many were moved, why one was not, and the position behind it (null at the end)
   * @throws StoreError, or the signal's reason
   */
  async *moves(
    request: ReplayRequest,
    by: string,
    { scope: since, after = null, perSecond = null }: ReplayStart,
    signal: AbortSignal,
  ): AsyncGenerator<Moves> {
    this.#require(request);
    const { store, inbox, onMoved, wait } = this.#options;
    const { add, toDestination } = request;
    if (request.inbox) return yield* inbox.moves(request, (statement) => this.persistently(statement, signal));
    const untried: ReplayStore["untried"] = (ids) => this.persistently(() => store.untried(ids), signal);
    const turn = paced({ untried }, this.#batchSize, wait, signal);
    // Slices of a quarter of a second.
    const slice =
      perSecond === null ? this.#batchSize : Math.max(1, Math.min(this.#batchSize, Math.floor(perSecond / 4)));
    for await (const { scope, rows, next } of this.#batches(request, since, after, signal)) {
      if (rows.length === 0) yield { moved: 0, position: next };
      for (const part of slices(rows, slice)) {
        const ids = part.map(({ id }) => id);
        await turn(add === undefined ? ids : ids.map((id) => deliveryId(id, add)));
        const move = () => (add === undefined ? store.move(scope, ids, by, toDestination) : store.add(ids, add));
        const { changed: moved, refusal } = await this.persistently(move, signal);
        if (moved > 0) onMoved();
        yield { moved, refusal, position: part.at(-1)?.sequence ?? null };
        if (perSecond !== null) await wait((part.length / perSecond) * 1000, signal);
        signal.throwIfAborted();
      }
    }
  }

  /**
   * What {@link run} would move now; changes nothing.
   *
   * @param sampleSize most rows to show: the first in the order of sequence
   * @param isLate asked between two batches; then the count is what was found by then
   * @throws StoreError, or the signal's reason
   */
  async preview(
    request: ReplayRequest,
    sampleSize: number,
    signal: AbortSignal,
    isLate: () => boolean = () => false,
  ): Promise<ReplayPreview> {
    this.#require(request);
    if (request.inbox) return await this.#options.inbox.preview(request, sampleSize);
    const sample: FinishedRow[] = [];
    const groups = new FailedGroups();
    let count = 0;
    try {
      for await (const { rows } of this.#batches(request, undefined, null, signal)) {
        count += rows.length;
        sample.push(...rows.slice(0, sampleSize - sample.length));
        for (const row of rows) groups.add(row, this.#options);
        if (isLate()) return { count, sample, groups: groups.shown, isExact: false };
      }
    } catch (error) {
      // Those of a cell that does not answer are not counted.
      if (!(error instanceof CellError)) throw error;
      return { count, sample, groups: groups.shown, isExact: false };
    }
    return { count, sample, groups: groups.shown, isExact: true };
  }

  #require(request: ReplayRequest): void {
    if (!hasFilter(request)) throw new Error(NO_FILTER);
    const { destinationRemedy } = this.#options.store;
    if (request.toDestination !== undefined && destinationRemedy !== undefined)
      throw new NoDestinationColumnError(destinationRemedy);
  }

  /** The rows of a request in the order of sequence, in batches; an empty one shows that some were read. */
  async *#batches(
    request: ReplayRequest,
    since: ReplayScope | undefined,
    after: string | null,
    signal: AbortSignal,
  ): AsyncGenerator<ReplayPage & { readonly scope: ReplayScope }> {
    const selection = this.#select(request);
    if (selection.filter.topics?.length === 0 || selection.ids?.length === 0) return;
    const scope = since ?? (await this.begin(signal));
    const pages =
      selection.ids === undefined
        ? this.#scan(scope, selection, after, signal)
        : this.#named(scope, selection, after, signal);
    const { add } = selection.filter;
    for await (const { rows, next } of pages) {
      const matching = rows.filter(selection.matches);
      yield { scope, rows: add === undefined ? matching : matching.map((row) => this.#added(row, add)), next };
    }
  }

  /** A message as the delivery that it is to get. @throws NotInListError */
  #added(row: FinishedRow, add: string): FinishedRow {
    if (!this.#options.listOf(row.topic ?? "")?.includes(add)) throw new NotInListError(row.topic, add);
    return { ...row, destination: add, isPinned: true };
  }

  /** `topic` and `topics` become one list; destination and reason decide row by row. */
  #select(request: ReplayRequest): Selection {
    const { ids, topic, topics, reason, createdAfter, createdBefore, add } = request;
    const state = request.state ?? (reason === undefined ? undefined : "dead");
    const single = topic === undefined ? undefined : [topic];
    const wanted = topics === undefined ? single : topics.filter((each) => topic === undefined || each === topic);
    return {
      filter: { state, topics: wanted, createdAfter, createdBefore, add },
      ids: ids === undefined ? undefined : [...new Set(ids)],
      matches: matcher(request, this.#options),
    };
  }

  async *#scan(
    scope: ReplayScope,
    { filter }: Selection,
    begin: string | null,
    signal: AbortSignal,
  ): AsyncGenerator<ReplayPage> {
    const { store } = this.#options;
    let after: string | null = begin;
    do {
      const from: string | null = after;
      const read = () => store.page(scope, filter, from, this.#batchSize);
      const page: ReplayPage = await this.persistently(read, signal);
      yield page;
      after = page.next;
    } while (after !== null);
  }

  /** Finds all of them before the first is moved: only then their order is known. */
  async *#named(
    scope: ReplayScope,
    { filter, ids = [] }: Selection,
    after: string | null,
    signal: AbortSignal,
  ): AsyncGenerator<ReplayPage> {
    const { store } = this.#options;
    const found: FinishedRow[] = [];
    for (const slice of slices(ids, this.#batchSize)) {
      found.push(...(await this.persistently(() => store.find(scope, filter, slice), signal)));
    }
    const left = found.filter(({ sequence }) => after === null || BigInt(sequence) > BigInt(after));
    for (const rows of slices(left.toSorted(bySequence), this.#batchSize)) yield { rows, next: null };
  }

  /**
   * Runs one statement, and retries it while the database is unavailable or busy, as in a restart. It may run twice.
   *
   * @throws StoreError, or the signal's reason
   */
  async persistently<T>(statement: () => Promise<T>, signal: AbortSignal): Promise<T> {
    for (const waitMs of RETRY_WAITS_MS) {
      signal.throwIfAborted();
      try {
        return await statement();
      } catch (error) {
        if (!mayPass(error)) throw error;
        await this.#options.wait(waitMs, signal);
      }
    }
    signal.throwIfAborted();
    return await statement();
  }
}

const DEFAULT_BATCH_SIZE = 1000;
/** A restart of the database takes a few seconds. */
const RETRY_WAITS_MS = [200, 400, 800, 1600, 3200] as const;

/** For the log: only the number of ids, since there may be thousands, and no key, which may be a hidden field. */
export function loggedFilter({ ids, ...rest }: { readonly ids?: readonly MessageId[] | undefined }): object {
  const given = Object.entries(rest).filter(([, value]) => value !== undefined);
  const set = Object.fromEntries(given.map(([name, value]) => [name, name === "key" ? "***" : value]));
  return ids === undefined ? set : { ids: ids.length, ...set };
}

/** What is said of the rows that a change has left as they are. @param refusal why one of them was */
export const othersText = (refusal: string): string => `others are unchanged: ${refusal}`;

function bySequence(a: FinishedRow, b: FinishedRow): number {
  const difference = BigInt(a.sequence) - BigInt(b.sequence);
  return difference < 0n ? -1 : Number(difference > 0n);
}

function slices<T>(items: readonly T[], size: number): readonly (readonly T[])[] {
  return Array.from({ length: Math.ceil(items.length / size) }, (_, n) => items.slice(n * size, (n + 1) * size));
}

/**
 * Keeps a change of many rows from running ahead of the pollers: claims follow the sequence, so changed rows go before all
 * fresh ones. 100,000 moved at once delayed fresh rows by 19 s in a system that delivers 5,000 a second, at this pace by
 * half a second.
 *
 * @param untried how many of some rows wait for their first try
 * @returns to be called with the rows of each part before they are changed: when those of earlier parts are a batch, it
 *   waits until they have been tried, and so the pollers reach the fresh rows behind. It ends when none was tried for two
 *   seconds: no poller runs, or those left wait behind others in backoff, which block only their own keys. It rejects
 *   with the signal's reason when that aborts first
 */
export function paced(
  { untried }: Pick<ReplayStore, "untried">,
  batchSize: number,
  wait: ReplayOptions["wait"],
  signal: AbortSignal,
): (ids: readonly MessageId[]) => Promise<void> {
  let changed: MessageId[] = [];
  return async (ids) => {
    let left = changed.length < batchSize ? 0 : changed.length;
    let fruitlessMs = 0;
    for (let waitMs = FIRST_WAIT_MS; left > 0 && fruitlessMs < NO_PROGRESS_MS; ) {
      await wait(waitMs, signal);
      signal.throwIfAborted();
      const now = await untried(changed);
      fruitlessMs = now < left ? 0 : fruitlessMs + waitMs;
      left = Math.min(now, left);
      waitMs = Math.min(waitMs * 1.2, LAST_WAIT_MS);
    }
    changed = changed.length < batchSize ? [...changed, ...ids] : [...ids];
  };
}

const FIRST_WAIT_MS = 50;
const LAST_WAIT_MS = 500;
/** Longer than pollers need to find the rows. */
const NO_PROGRESS_MS = 2000;

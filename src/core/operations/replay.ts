import { deliveryId } from "../../model/deliveries.ts";
import { CellError, errorText, mayPass, StoreError } from "../../model/errors.ts";
import type { DestinationOf, MessageId } from "../../model/rows.ts";
import type {
  Changed,
  FinishedRow,
  ReplayFilter,
  ReplayPage,
  ReplayScope,
  ReplayStore,
} from "../../ports/finishedRows.ts";
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

/** A change of many rows ended early; `cause` has the reason. It may be repeated for the rest. */
export class InterruptedError extends Error {
  override readonly name = "InterruptedError";
  /** The rows known to be changed, by the word for it. */
  readonly done: Readonly<Record<string, number>>;
  /** With it as a filter a repetition changes the rest; undefined if the same request does. */
  readonly finishedBefore: string | undefined;

  constructor(verb: Verb, count: number, cause: unknown, finishedBefore?: string) {
    // The database continues a statement whose answer nobody awaits any more.
    const isUnanswered = cause instanceof StoreError && cause.code === "unavailable";
    const more = isUnanswered ? `; those of the last batch may be ${verb} too` : "";
    super(`ended early, after ${count} ${count === 1 ? "row was" : "rows were"} ${verb}${more}`, { cause });
    this.done = { [verb]: count };
    this.finishedBefore = finishedBefore;
  }
}

type Verb = "moved" | "changed";

export class NoDestinationColumnError extends Error {
  override readonly name = "NoDestinationColumnError";

  /** @param remedy the statements that add them */
  constructor(remedy: string) {
    super(
      `the outbox has no columns for another destination: run svc migrate, or these statements, and restart the processes\n      ${remedy}`,
    );
  }
}

export class NotInListError extends Error {
  override readonly name = "NotInListError";

  constructor(topic: string | null, add: string) {
    super(
      `the topic ${JSON.stringify(topic)} has no route with a list of destinations that names ${JSON.stringify(add)}: add it to that list, or choose other topics`,
    );
  }
}

interface Replayed {
  readonly moved: number;
  /** Why a row was not moved, redacted; undefined for none. */
  readonly refusal?: string | undefined;
}

interface ReplayPace {
  /** Most rows in a second; by default no limit. */
  readonly perSecond?: number | undefined;
  /** Called at the start and after each batch with the rows moved so far, and what `InterruptedError` has. */
  readonly onProgress?: ((moved: number, finishedBefore: string | undefined) => void) | undefined;
}

interface Selection {
  readonly filter: ReplayFilter;
  readonly ids: readonly MessageId[] | undefined;
  readonly matches: (row: FinishedRow) => boolean;
}

/**
 * Moves finished outbox rows, and dead rows of the inbox, back to `pending` (spec, "POST /admin/replay"): in batches in
 * the order of their sequence, each in its own short transaction; no faster than the pollers deliver, so that fresh rows
 * do not wait behind it.
 */
export class Replay {
  readonly #options: ReplayOptions;
  readonly #batchSize: number;

  constructor(options: ReplayOptions) {
    this.#options = options;
    this.#batchSize = options.batchSize ?? DEFAULT_BATCH_SIZE;
  }

  /**
   * Moves every row that is finished now and matches, or adds its delivery. Count and filter are logged.
   *
   * @param by who requests it, for the log and the history
   * @param signal aborts it between two batches
   * @throws InterruptedError with the rows moved by then; its cause is the abort reason or the database's error
   */
  async run(
    request: ReplayRequest,
    by: string,
    signal: AbortSignal,
    { perSecond, onProgress }: ReplayPace = {},
  ): Promise<Replayed> {
    this.check(request);
    const { inbox, redact, wait } = this.#options;
    let { finishedBefore } = request;
    const about = {
      log: "replay",
      action: "replay",
      verb: "moved" as const,
      by,
      filter: inGroup(request, redact),
      finishedBefore: () => finishedBefore,
    };
    const onBegun = ({ finishedUntil: until }: ReplayScope) => {
      const { add, finishedBefore: before = until } = request;
      // A delivery is added once, whenever its message finished.
      if (add === undefined) finishedBefore = before < until ? before : until;
      onProgress?.(0, finishedBefore);
    };
    const batches = request.inbox
      ? inbox.moves(request, (statement) => this.#persistently(statement, signal))
      : this.#moves(request, by, perSecond, signal, onBegun);
    const { changed: moved, refusal } = await reported(about, this.#options, async (add) => {
      let moved = 0;
      for await (const { rows, ...done } of batches) {
        add(done);
        moved += done.changed;
        onProgress?.(moved, finishedBefore);
        if (perSecond !== undefined) await wait((rows / perSecond) * 1000, signal);
        signal.throwIfAborted();
      }
    });
    return { moved, refusal };
  }

  async *#moves(
    request: ReplayRequest,
    by: string,
    perSecond: number | undefined,
    signal: AbortSignal,
    onBegun: (scope: ReplayScope) => void,
  ): AsyncGenerator<Moves> {
    const { store, onMoved, wait } = this.#options;
    const { add, toDestination } = request;
    const untried: ReplayStore["untried"] = (ids) => this.#persistently(() => store.untried(ids), signal);
    const turn = paced({ untried }, this.#batchSize, wait, signal);
    // Slices of a quarter of a second.
    const slice = Math.max(1, Math.min(this.#batchSize, Math.floor((perSecond ?? Number.POSITIVE_INFINITY) / 4)));
    for await (const { scope, rows } of this.#batches(request, signal, onBegun)) {
      for (const part of slices(rows, slice)) {
        const ids = part.map(({ id }) => id);
        await turn(add === undefined ? ids : ids.map((id) => deliveryId(id, add)));
        const move = () => (add === undefined ? store.move(scope, ids, by, toDestination) : store.add(ids, add));
        const done = await this.#persistently(move, signal);
        if (done.changed > 0) onMoved();
        yield { ...done, rows: part.length };
      }
    }
  }

  /**
   * What {@link run} would move now; changes nothing.
   *
   * @param sampleSize most rows to show: the first in the order of sequence
   * @param mostMs for how long it counts, looked at between two batches
   * @throws StoreError, or the signal's reason
   */
  async preview(
    request: ReplayRequest,
    sampleSize: number,
    signal: AbortSignal,
    mostMs = Number.POSITIVE_INFINITY,
  ): Promise<ReplayPreview> {
    this.check(request);
    if (request.inbox) return await this.#options.inbox.preview(request, sampleSize);
    const sample: FinishedRow[] = [];
    const groups = new FailedGroups();
    const until = performance.now() + mostMs;
    let count = 0;
    try {
      for await (const { rows } of this.#batches(request, signal)) {
        count += rows.length;
        sample.push(...rows.slice(0, sampleSize - sample.length));
        for (const row of rows) groups.add(row, this.#options);
        if (performance.now() >= until) return { count, sample, groups: groups.shown, isExact: false };
      }
    } catch (error) {
      // Those of a cell that does not answer are not counted.
      if (!(error instanceof CellError)) throw error;
      return { count, sample, groups: groups.shown, isExact: false };
    }
    return { count, sample, groups: groups.shown, isExact: true };
  }

  /** @throws NoDestinationColumnError, or an Error without a filter */
  check(request: ReplayRequest): void {
    if (!hasFilter(request)) throw new Error(NO_FILTER);
    const { destinationRemedy } = this.#options.store;
    if (request.toDestination !== undefined && destinationRemedy !== undefined)
      throw new NoDestinationColumnError(destinationRemedy);
  }

  async *#batches(
    request: ReplayRequest,
    signal: AbortSignal,
    onBegun?: (scope: ReplayScope) => void,
  ): AsyncGenerator<{ readonly rows: readonly FinishedRow[]; readonly scope: ReplayScope }> {
    const { filter, ids, matches } = this.#select(request);
    if (filter.topics?.length === 0 || ids?.length === 0) return;
    const scope = await this.#persistently(() => this.#options.store.begin(), signal);
    onBegun?.(scope);
    const pages = ids === undefined ? this.#scan(scope, filter, signal) : this.#named(scope, filter, ids, signal);
    const { add } = filter;
    for await (const rows of pages) {
      const matching = rows.filter(matches);
      yield { scope, rows: add === undefined ? matching : matching.map((row) => this.#added(row, add)) };
    }
  }

  /** A message as the delivery that it is to get. @throws NotInListError */
  #added(row: FinishedRow, add: string): FinishedRow {
    if (!this.#options.listOf(row.topic ?? "")?.includes(add)) throw new NotInListError(row.topic, add);
    return { ...row, destination: add, isPinned: true };
  }

  /** `topic` and `topics` become one list; destination and reason decide row by row. */
  #select(request: ReplayRequest): Selection {
    const { ids, topic, topics, reason, createdAfter, createdBefore, finishedBefore, add } = request;
    const state = request.state ?? (reason === undefined ? undefined : "dead");
    const single = topic === undefined ? undefined : [topic];
    const wanted = topics === undefined ? single : topics.filter((each) => topic === undefined || each === topic);
    return {
      filter: { state, topics: wanted, createdAfter, createdBefore, finishedBefore, add },
      ids: ids === undefined ? undefined : [...new Set(ids)],
      matches: matcher(request, this.#options),
    };
  }

  async *#scan(scope: ReplayScope, filter: ReplayFilter, signal: AbortSignal): AsyncGenerator<readonly FinishedRow[]> {
    let after: string | null = null;
    do {
      const from: string | null = after;
      const read = () => this.#options.store.page(scope, filter, from, this.#batchSize);
      const page: ReplayPage = await this.#persistently(read, signal);
      yield page.rows;
      after = page.next;
    } while (after !== null);
  }

  /** Finds all of them before the first is moved: only then their order is known. */
  async *#named(
    scope: ReplayScope,
    filter: ReplayFilter,
    ids: readonly MessageId[],
    signal: AbortSignal,
  ): AsyncGenerator<readonly FinishedRow[]> {
    const found: FinishedRow[] = [];
    for (const slice of slices(ids, this.#batchSize)) {
      found.push(...(await this.#persistently(() => this.#options.store.find(scope, filter, slice), signal)));
    }
    yield* slices(found.toSorted(bySequence), this.#batchSize);
  }

  /** Retries a statement, which may run twice, while the database is away. @throws StoreError, or the abort reason */
  async #persistently<T>(statement: () => Promise<T>, signal: AbortSignal): Promise<T> {
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
function loggedFilter({ ids, ...rest }: { readonly ids?: readonly MessageId[] | undefined }): object {
  const given = Object.entries(rest).filter(([, value]) => value !== undefined);
  const set = Object.fromEntries(given.map(([name, value]) => [name, name === "key" ? "***" : value]));
  return ids === undefined ? set : { ids: ids.length, ...set };
}

/** The text about the rows that a change did not touch. @param refusal why the change refused one of them */
export const othersText = (refusal: string): string => `others are unchanged: ${refusal}`;

interface AboutChange {
  readonly log: string;
  /** In the audit log. */
  readonly action: string;
  readonly verb: Verb;
  readonly by: string;
  readonly filter: object;
  readonly note?: string;
  /** See `InterruptedError`. */
  readonly finishedBefore?: () => string | undefined;
}

/**
 * Runs a change of many rows: log and audit log have how many it changed, also if it ended early.
 *
 * @param work calls `add` after each batch
 * @returns the sum, and why one row was not changed, redacted
 * @throws InterruptedError whose cause is what the work throws
 */
export async function reported(
  { log: line, action, verb, by, note, finishedBefore: before, ...about }: AboutChange,
  { redact, audit, log }: Pick<ReplayOptions, "redact" | "audit" | "log">,
  work: (add: (done: Changed) => void) => Promise<void>,
): Promise<Changed> {
  let changed = 0;
  let refusal: string | undefined;
  const filter = loggedFilter(about.filter);
  const detail = (end: string) => {
    const why = note === undefined ? "" : `: ${note}`;
    const kept = refusal === undefined ? "" : `; ${othersText(refusal)}`;
    return `${changed} rows of ${JSON.stringify(filter)}${end}${why}${kept}`;
  };
  const fields = () => ({ [verb]: changed, refusal, filter, by, note });
  try {
    await work((done) => {
      changed += done.changed;
      refusal ??= done.refusal && redact(done.refusal);
    });
  } catch (error) {
    const finishedBefore = before?.();
    log.warn({ ...fields(), finishedBefore, reason: errorText(error) }, `${line} ended early`);
    await audit.add({ actor: by, action, target: null, detail: detail(", ended early") });
    throw new InterruptedError(verb, changed, error, finishedBefore);
  }
  log.info(fields(), line);
  await audit.add({ actor: by, action, target: null, detail: detail("") });
  return { changed, refusal };
}

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

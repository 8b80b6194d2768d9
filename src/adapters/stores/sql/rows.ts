import { isRefused, type StoreError } from "../../../model/errors.ts";
import type { ClaimedRow, ClaimToken, Headers, MessageId, RoutedRow, TooLarge } from "../../../model/rows.ts";
import type { Changed } from "../../../ports/finishedRows.ts";
import type { Tried } from "./refusalCheck.ts";

/** A row from a driver. All databases name their columns alike; identities are decimal text. */
export type Row = Readonly<Record<string, unknown>>;

/** Values by parameter name; null is NULL. A statement takes the values that it declares. */
export type Values = Readonly<Record<string, unknown>>;

/** Runs the statements of a store; `S` is the database's type of a statement. Errors are `StoreError`s. */
export interface StatementRunner<S> {
  /** Runs one statement in a transaction of its own. @returns the rows of its last result set */
  run(statement: S, values?: Values): Promise<readonly Row[]>;
  /** The same. @returns the rows of every result set, in order */
  runAll(statement: S, values?: Values): Promise<readonly (readonly Row[])[]>;
  /** Runs statements in one transaction and rolls it back, to see whether the database refuses what they change. */
  runAndRollBack<T>(work: (run: StatementRunner<S>["run"]) => Promise<T>): Promise<T>;
}

export type Named<S, Name extends string> = Readonly<Record<Name, S>>;

export function joined(text: string | TemplateStringsArray, parts: readonly (string | number)[]): string {
  return typeof text === "string" ? text : text.reduce((sql, piece, n) => `${sql}${parts[n - 1]}${piece}`);
}

/** @param text the statement's name for errors and logs, and its parameters, such as `outbox.due rows(from, limit)` */
export function signature(text: string): { readonly name: string; readonly parameters: readonly string[] } {
  const [, name = text, parameters = ""] = /^([^(]*)\((.*)\)$/s.exec(text) ?? [];
  return { name, parameters: parameters.split(/,\s*/).filter((each) => each !== "") };
}

export function idsOf(rows: readonly Row[]): MessageId[] {
  return rows.map((row) => row.id as MessageId);
}

/** @returns the number in a column of the one row of an answer; 0 without a row */
export function countOf([row]: readonly Row[], column: string): number {
  return Number(row?.[column] ?? 0);
}

/** @returns the age in a column `oldest_ms`, at least 0 as the clock may have been set back; null without a row */
export function oldestAgeMs(row: Row | undefined): number | null {
  const oldest = row?.oldest_ms;
  return oldest === undefined || oldest === null ? null : Math.max(0, Number(oldest));
}

/** An owner may have chosen a number type for a text column. */
export function textOf(value: unknown): string | null {
  return value === null || value === undefined ? null : String(value);
}

/** A whole number as a driver gives it: wide types come as text. @param absent the value for NULL */
export function numberOf(value: unknown, absent: number): number {
  return value === null || value === undefined ? absent : Number(value);
}

/**
 * @param value a driver's `Date`, or whole ms since 1970 as text or number
 * @returns null for NULL and for what no `Date` can hold: times of PostgreSQL reach further, up to `infinity`
 */
export function dateOf(value: unknown): Date | null {
  if (value === null || value === undefined) return null;
  const date = value instanceof Date ? value : new Date(Number(value));
  return Number.isNaN(date.getTime()) ? null : date;
}

export function routedRow(row: Row): RoutedRow {
  const destination = textOf(row.destination);
  const isPinned = destination !== null && textOf(row.routes) === null;
  return { topic: textOf(row.topic), destination, isPinned };
}

/** The same of a finished row, were it replayed: the routes decide anew, unless it is pinned. */
export function routedAgain(row: Row): RoutedRow {
  const routed = routedRow(row);
  return routed.isPinned ? routed : { ...routed, destination: null };
}

export function listedRow(row: Row) {
  return {
    id: row.id as MessageId,
    sequence: row.sequence as string,
    ...routedRow(row),
    key: textOf(row.key),
    attempt: numberOf(row.attempt, 0),
    lastError: row.last_error as string | null,
  };
}

export function claimedRow(row: Row, token: ClaimToken): ClaimedRow {
  return {
    id: row.id as MessageId,
    messageId: (row.message_id ?? undefined) as MessageId | undefined,
    hasOpenCondition: row.has_open_condition === true,
    claimToken: token,
    sequence: row.sequence as string,
    ...routedRow(row),
    key: textOf(row.key),
    aggregateType: textOf(row.aggregate_type),
    payload: row.payload as string | null,
    tooLarge: tooLargeOf(row),
    headers: headersOf(row.headers),
    attempt: numberOf(row.attempt, 0),
    maxAttempts: numberOf(row.max_attempts, DEFAULT_MAX_ATTEMPTS),
    createdAt: dateOf(row.created_at),
    expiresInMs: row.expires_in_ms === null ? null : Number(row.expires_in_ms),
  };
}

/** The default of the bundled table's column. */
const DEFAULT_MAX_ATTEMPTS = 5;

/** What a claim has left in the table, told from NULL by `has_payload` and `has_headers`. */
export function tooLargeOf(row: Row): TooLarge | null {
  if (row.payload === null && row.has_payload === true) return "payload";
  return row.headers === null && row.has_headers === true ? "headers" : null;
}

const NO_HEADERS: Headers = Object.freeze({});

/**
 * Headers of any column content, which must not block the row: nulls are left out, and other values are JSON text. None
 * if the text is not a JSON object.
 *
 * @param value the column as text
 */
export function headersOf(value: unknown): Headers {
  if (typeof value !== "string" || value === "{}" || value === "") return NO_HEADERS;
  let parsed: unknown;
  try {
    parsed = JSON.parse(value);
  } catch {
    return NO_HEADERS;
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return NO_HEADERS;
  for (const header of Object.values(parsed)) {
    if (typeof header !== "string") return textHeaders(parsed);
  }
  return parsed as Headers;
}

function textHeaders(parsed: object): Headers {
  const entries = Object.entries(parsed).filter(([, header]) => header !== null);
  return Object.fromEntries(
    entries.map(([name, header]) => [name, typeof header === "string" ? header : JSON.stringify(header)]),
  );
}

/** Characters of `last_error` and of other texts that people read. */
const LONGEST_TEXT = 2000;
/** Characters of names, such as those of a person, a replica or a destination. */
export const LONGEST_NAME = 400;

/** @returns what a database can store: without NUL and halves of characters, no longer than `length` UTF-16 units */
export function storable(text: string, length = LONGEST_TEXT): string {
  return text.slice(0, length).replace(/\0|\p{Surrogate}/gu, "");
}

/**
 * Runs a statement for a batch. If the database refuses a row, tries the two halves, the first one first, so that every
 * good row passes and each refused one ends up alone, after about 2·log2(n) tries. Lazy: the next part is tried when
 * the caller has handled the last one.
 *
 * @param attempt handles a part of the batch in one transaction
 * @returns the results and the refused items, in the order of the batch
 * @throws whatever `attempt` throws that is not a refusal
 */
export async function* tryInParts<T, R>(
  items: readonly T[],
  attempt: (part: readonly T[]) => Promise<R>,
): AsyncGenerator<Tried<T, R>> {
  if (items.length === 0) return;
  let result: R;
  try {
    result = await attempt(items);
  } catch (error) {
    return yield* tryInHalves(items, error, attempt);
  }
  yield { isRefused: false, items, result };
}

/** {@link tryInParts} behind the statement for the whole batch, which has failed. @throws also that failure */
export async function* tryInHalves<T, R>(
  items: readonly T[],
  failure: unknown,
  attempt: (part: readonly T[]) => Promise<R>,
): AsyncGenerator<Tried<T, R>> {
  const [first] = items;
  if (!isRefused(failure) || first === undefined) throw failure;
  if (items.length === 1) return yield { isRefused: true, item: first, error: failure };
  const middle = Math.ceil(items.length / 2);
  yield* tryInParts(items.slice(0, middle), attempt);
  yield* tryInParts(items.slice(middle), attempt);
}

interface ChangedInParts<T, R> {
  readonly results: readonly R[];
  readonly refused: ReadonlyMap<T, StoreError>;
}

/** {@link tryInParts}, for callers that do nothing more about refused items. */
export async function changeInParts<T, R>(
  items: readonly T[],
  change: (part: readonly T[]) => Promise<R>,
): Promise<ChangedInParts<T, R>> {
  const results: R[] = [];
  const refused = new Map<T, StoreError>();
  for await (const tried of tryInParts(items, change)) {
    if (tried.isRefused) refused.set(tried.item, tried.error);
    else results.push(tried.result);
  }
  return { results, refused };
}

/** {@link changeInParts} of statements that answer one row each, with the number of rows `changed`. */
export async function countChanged(
  ids: readonly MessageId[],
  change: (part: readonly MessageId[]) => Promise<readonly Row[]>,
): Promise<Changed> {
  const { results, refused } = await changeInParts(ids, change);
  const [first] = refused.values();
  return { changed: results.reduce((sum, rows) => sum + countOf(rows, "changed"), 0), refusal: first?.message };
}

interface Keyed {
  readonly source: string;
  readonly idempotencyKey: string;
}

/**
 * An insert waits for the transaction that holds one of its keys: in this order two batches never wait for each other.
 * Of two rows with one key the first stays first.
 */
export function inKeyOrder<T extends Keyed>(rows: readonly T[]): readonly T[] {
  return rows.toSorted((a, b) => byCodeUnits(a.source, b.source) || byCodeUnits(a.idempotencyKey, b.idempotencyKey));
}

/** The same in every process, whatever its locale. */
function byCodeUnits(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

/**
 * The low-water marks of the outbox that this process knows. Statements start there to skip index entries of finished
 * rows that an old transaction keeps alive. Without them every statement is right, only slower.
 */
export interface LowWater {
  /** The lowest unfinished `sequence` that is not parked, up to a second old. */
  readonly newest: string;
  /** A statement has found an unfinished row at this position. */
  notePosition(position: string): void;
  /** Reads the next mark. @param intervalMs since the last one; about a second by default */
  refreshIfDue(intervalMs?: number): Promise<void>;
  /** The parameter `lowWater` of a statement: nothing is unfinished below it. */
  marks(): readonly string[];
}

/** For a database in which finished rows leave the indexes with their commit. */
export const NO_LOW_WATER: LowWater = {
  newest: "0",
  notePosition: () => {},
  refreshIfDue: async () => {},
  marks: () => [],
};

/** Positions are decimal numbers of any length. */
export function lower(a: string, b: string): string {
  return BigInt(a) < BigInt(b) ? a : b;
}

export function higher(a: string, b: string): string {
  return BigInt(a) > BigInt(b) ? a : b;
}

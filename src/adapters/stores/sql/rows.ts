import type { ClaimedRow, ClaimToken, Headers, MessageId, RoutedRow } from "../../../model/rows.ts";
import type { FinishedRow } from "../../../ports/finishedRows.ts";
import type { PulledRow } from "../../../ports/pullStore.ts";
import type { DestinationBacklog, OutboxBacklog, ParkedRow } from "../../../ports/store.ts";

/** A row from a driver. All databases name their columns alike; identities are decimal text. */
export type Row = Readonly<Record<string, unknown>>;

/** Values by parameter name; null is NULL. A statement takes those that it declares. */
export type Values = Readonly<Record<string, unknown>>;

/** Runs the statements of a store; `S` is the database's type of a statement. Errors are `StoreError`s. */
export interface StatementRunner<S> {
  /** Runs one statement in a transaction of its own. @returns the rows of its last result set */
  run(statement: S, values?: Values): Promise<readonly Row[]>;
  /** The same. @returns the rows of every result set, in order */
  runAll(statement: S, values?: Values): Promise<readonly (readonly Row[])[]>;
  /** Runs a change and rolls it back, to see whether the database refuses it. */
  runAndRollBack(statement: S, values: Values): Promise<void>;
}

/** The statements of these names; `S` is the database's type of a statement. */
export type Named<S, Name extends string> = Readonly<Record<Name, S>>;

/** The SQL of a template, or of a text as it is. */
export function joined(text: string | TemplateStringsArray, parts: readonly (string | number)[]): string {
  return typeof text === "string" ? text : text.reduce((sql, piece, n) => `${sql}${parts[n - 1]}${piece}`);
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

/** @param rows one for each destination, or one without any; each has the figures of all */
export function backlogOf(rows: readonly Row[]): OutboxBacklog {
  const [first] = rows;
  const byDestination = new Map<string, DestinationBacklog>();
  for (const row of rows) {
    if (typeof row.destination !== "string") continue;
    byDestination.set(row.destination, {
      pending: Number(row.pending),
      oldestPendingAgeMs: oldestAgeMs(row),
      processing: Number(row.processing),
      blockedKeys: Number(row.blocked),
    });
  }
  return {
    pending: Number(first?.all_pending ?? 0),
    oldestPendingAgeMs: oldestAgeMs({ oldest_ms: first?.all_oldest_ms }),
    blockedKeys: Number(first?.blocked_keys ?? 0),
    parked: Number(first?.parked ?? 0),
    byDestination,
  };
}

/** The default of the bundled table's column. */
const DEFAULT_MAX_ATTEMPTS = 5;

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

/** What decides where an outbox row goes. */
export function routedRow(row: Row): RoutedRow {
  return { topic: textOf(row.topic), destinationOverride: textOf(row.destination_override) };
}

/** @param token under which the row was claimed */
export function claimedRow(row: Row, token: ClaimToken): ClaimedRow {
  return {
    id: row.id as MessageId,
    claimToken: token,
    sequence: row.sequence as string,
    ...routedRow(row),
    key: textOf(row.key),
    aggregateType: textOf(row.aggregate_type),
    payload: row.payload as string | null,
    headers: headersOf(row.headers),
    attempt: numberOf(row.attempt, 0),
    maxAttempts: numberOf(row.max_attempts, DEFAULT_MAX_ATTEMPTS),
    createdAt: dateOf(row.created_at),
    expiresInMs: row.expires_in_ms === null ? null : Number(row.expires_in_ms),
  };
}

export function pulledRow(row: Row): PulledRow {
  return {
    id: row.id as MessageId,
    aggregateId: row.aggregate_id as string | null,
    eventType: row.event_type as string | null,
    idempotencyKey: row.idempotency_key as string,
    correlationId: row.correlation_id as string | null,
    attempt: numberOf(row.attempt, 0),
    createdAt: dateOf(row.created_at),
    headers: headersOf(row.headers),
    payload: (row.payload as string | null) ?? "null",
  };
}

export function parkedRow(row: Row): ParkedRow {
  return {
    id: row.id as MessageId,
    sequence: row.sequence as string,
    ...routedRow(row),
    key: textOf(row.key),
    attempt: numberOf(row.attempt, 0),
    parkedAt: dateOf(row.updated_at),
    lastError: row.last_error as string | null,
  };
}

export function finishedRow(row: Row): FinishedRow {
  return {
    id: row.id as MessageId,
    sequence: row.sequence as string,
    ...routedRow(row),
    key: textOf(row.key),
    state: row.state as FinishedRow["state"],
    attempt: numberOf(row.attempt, 0),
    createdAt: dateOf(row.created_at),
    lastError: row.last_error as string | null,
  };
}

const NO_HEADERS: Headers = Object.freeze({});

/**
 * Headers as written into the column: it may hold anything, and none of it may block the row.
 *
 * @param value the column as text
 * @returns the headers, without nulls and with other values as JSON text; none when the text is not a JSON object
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

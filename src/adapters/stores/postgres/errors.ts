import { errorText, StoreError, type StoreErrorCode } from "../../../model/errors.ts";
import { SKIPPED_REASON } from "../sql/refusalCheck.ts";

/**
 * By SQLSTATE (PostgreSQL documentation, appendix A), none for a fault of the connection, and by whose code has failed:
 * ours, or a trigger or policy of the owner.
 */
export function toStoreError(statement: string, error: unknown): StoreError {
  if (error instanceof StoreError) return error;
  const state = sqlState(error);
  const code = state === undefined ? "unavailable" : codeOfState(state, error as ServerFields);
  return new StoreError(code, `${statement}: ${safeText(error, state)}`, { cause: withoutRowData(error) });
}

export function isReadOnly(error: unknown): boolean {
  return sqlState(error) === "25006";
}

/**
 * Whether a statement was not executed because of its preparation. 26000: unknown; 42P05: exists already; 0A000 from
 * there: a column was altered. A statement of a trigger that fails so would fail again.
 */
export function isPreparationLost(error: unknown): boolean {
  const { code, routine, where } = error as { readonly code?: unknown } & ServerFields;
  if (isRaisedBy(routine) || isOfFunction(where)) return false;
  return code === "26000" || code === "42P05" || (code === "0A000" && routine === "RevalidateCachedQuery");
}

/**
 * Whether a session was ended, by an operator or with its server. It says nothing of its host: a server that is gone
 * refuses the next connection.
 */
export function isEnded(error: unknown): boolean {
  const { code, message } = error as { readonly code?: unknown; readonly message?: unknown };
  return hasSqlState(error, ADMIN_SHUTDOWN) || code === "ECONNRESET" || code === "EPIPE" || ENDED.has(message);
}

const ADMIN_SHUTDOWN = "57P01";
/** The driver's errors of a connection that has ended, before and between its questions. */
const ENDED: ReadonlySet<unknown> = new Set([
  "Connection terminated unexpectedly",
  "Client has encountered a connection error and is not queryable",
  "Client was closed and is not queryable",
]);

export function isLockTimeout(error: unknown): boolean {
  return hasSqlState(error, LOCK_NOT_AVAILABLE);
}

/** Whether a statement has waited, or run, for as long as it may. */
export function hasGivenUp(error: unknown): boolean {
  return isLockTimeout(error) || hasSqlState(error, QUERY_CANCELED);
}

const LOCK_NOT_AVAILABLE = "55P03";
/** By a `statement_timeout`, too. */
const QUERY_CANCELED = "57014";
/** Of a part of a text with less than no characters, which statements of ours raise on purpose. */
const SKIPPED = "22011";
const UNIQUE_VIOLATION = "23505";

/** @param error of the driver, or the `StoreError` made of it */
export function hasSqlState(error: unknown, state: string): boolean {
  if (error instanceof StoreError) return error.message.endsWith(`(SQLSTATE ${state})`);
  return sqlState(error) === state;
}

/** Fields of a server's error that name no row and are never translated; of `where` only whose it is. */
interface ServerFields {
  /** The server's function that reported the error. */
  readonly routine?: unknown;
  /** The calls that led to it: only functions and triggers have any. */
  readonly where?: unknown;
}

function sqlState(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) && !/^E[A-Z]{4}$/.test(code) ? code : undefined;
}

function codeOfState(state: string, { routine, where }: ServerFields): StoreErrorCode {
  const isRaised = isRaisedBy(routine);
  if (MAY_PASS.test(state) && (isRaised || (isOfCode(where) && !/^(57P|25)/.test(state)))) return "busy";
  // A standby answers reads but takes no writes: another host may be the primary.
  if (state === "25006" || /^(08|53|28|57P)/.test(state)) return "unavailable";
  if (state === SKIPPED && !isOfFunction(where)) return "skipped";
  if (state === "57014" || state === "55P03" || state.startsWith("40")) return "contention";
  // Of a table that a trigger writes, the key says nothing about the row: it may be that of a sequence set back.
  if (state === UNIQUE_VIOLATION && !isOfFunction(where)) return "duplicate";
  if (/^(22|23|54)/.test(state)) return "data";
  if (/^(P0|09|20|21|27|2F|38|39|44)/.test(state) || !STANDARD_CLASSES.has(state.slice(0, 2))) return "refused";
  // Our statements call no functions of the owner: an error with a context, or from RAISE, comes from a trigger.
  if (isRaised || routine === "ExecWithCheckOptions" || isOfFunction(where)) return "refused";
  if (/^(42|3F|3D)/.test(state)) return "schema";
  return "other";
}

const isRaisedBy = (routine: unknown): boolean => routine === "exec_stmt_raise";

/** Whether the error has the context of a function or trigger, not only of the Citus node that ran the statement. */
const isOfFunction = (where: unknown): boolean => isText(where) && !/^while executing command on \S+$/.test(where);

/** Whether the owner's code or a foreign key failed: the context of a wait of our own statement only names a tuple. */
const isOfCode = (where: unknown): boolean => isText(where) && /PL\/|SQL/.test(where);

/** States of errors that may pass by themselves, also when the owner's code fails with them. */
const MAY_PASS = /^(?:08|25006|28|40|53|55P03|57014|57P)/;

/** The classes of PostgreSQL itself; any other comes from a RAISE. */
const STANDARD_CLASSES = new Set(
  "00 01 02 03 08 09 0A 0B 0F 0L 0P 0Z 10 20 21 22 23 24 25 26 27 28 2B 2D 2F 34 38 39 3B 3D 3F 40 42 44 53 54 55 57 58 72 F0 HV P0 XX".split(
    " ",
  ),
);

const isText = (value: unknown): value is string => typeof value === "string" && value !== "";

/** Messages of class 22 quote the value, which a sender wrote: it is cut out. That of 2200H quotes a sequence. */
function safeText(error: unknown, state: string | undefined): string {
  if (state === undefined) return errorText(error);
  if (state === SKIPPED && !isOfFunction((error as ServerFields).where)) return SKIPPED_REASON;
  const message = error instanceof Error ? error.message : String(error);
  const cut =
    state.startsWith("22") && state !== "2200H"
      ? message.replace(/: ["«„].*/s, "").replace(/["«„].*["»“]|["«„].*$/s, "...")
      : message;
  return `${cut} (SQLSTATE ${state})`;
}

/** The driver's error carries row data (`detail`, `where`, `internalQuery`) that must not reach a log. */
function withoutRowData(error: unknown): Error | undefined {
  if (!(error instanceof Error)) return undefined;
  const plain = new Error(sqlState(error) === undefined ? error.message : `SQLSTATE ${sqlState(error)}`);
  if (error.stack !== undefined) plain.stack = error.stack.replace(error.message, plain.message);
  return plain;
}

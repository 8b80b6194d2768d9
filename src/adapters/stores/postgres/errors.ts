import { errorText, StoreError, type StoreErrorCode } from "../../../model/errors.ts";

/**
 * Error codes of the PostgreSQL store, from SQLSTATE classes and socket errors
 * (PostgreSQL documentation, appendix A, "PostgreSQL Error Codes"):
 *
 * | code        | from |
 * | ----------- | ---- |
 * | unavailable | 08 connection, 53 resources, 57P shutdown, 28 authentication, 25006 read-only standby, socket errors, pool or query timeouts |
 * | contention  | 40 rollback (deadlock, serialization), 55P03 lock not available, 57014 cancelled |
 * | data        | 22 data exception, 23 integrity constraint, 54 program limit (for example an index row too large) |
 * | schema      | 42 undefined table or column, missing right; 3F schema |
 * | other       | anything else |
 */
export function toStoreError(statement: string, error: unknown): StoreError {
  if (error instanceof StoreError) return error;
  const state = sqlState(error);
  const code = state === undefined ? "unavailable" : codeOfState(state);
  return new StoreError(code, `${statement}: ${safeText(error, state)}`, { cause: withoutRowData(error) });
}

/** Whether the server has refused a connection because it has as many as it may have. */
export function isFull(error: unknown): boolean {
  return sqlState(error) === "53300";
}

function sqlState(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) && !/^E[A-Z]{4}$/.test(code) ? code : undefined;
}

function codeOfState(state: string): StoreErrorCode {
  // A standby answers reads but no writes: another host may be the primary, so it counts as "not available here".
  if (state === "25006" || /^(08|53|28|57P)/.test(state)) return "unavailable";
  if (state === "57014" || state === "55P03" || state.startsWith("40")) return "contention";
  if (/^(22|23|54)/.test(state)) return "data";
  if (/^(42|3F|3D)/.test(state)) return "schema";
  return "other";
}

/** Messages of class 22 quote the offending value, which may be anything a sender wrote: keep only what stands before it. */
function safeText(error: unknown, state: string | undefined): string {
  if (state === undefined) return errorText(error);
  const message = error instanceof Error ? error.message : String(error);
  const cut = state.startsWith("22") ? message.replace(/: ".*/s, "") : message;
  return `${cut} (SQLSTATE ${state})`;
}

/** The driver's error carries `detail`, `where` and `internalQuery`, which hold row data: they must not reach a log. */
function withoutRowData(error: unknown): Error | undefined {
  if (!(error instanceof Error)) return undefined;
  const plain = new Error(sqlState(error) === undefined ? error.message : `SQLSTATE ${sqlState(error)}`);
  if (error.stack !== undefined) plain.stack = error.stack.replace(error.message, plain.message);
  return plain;
}

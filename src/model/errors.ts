/** Errors with a closed `code`, so that callers decide by code and people read the message. */

export interface ConfigProblem {
  /** Key path such as `destinations.orders.baseUrl`, or an environment variable's name. */
  readonly path: string;
  /** What is wrong, what was found (masked when secret), what is expected. */
  readonly message: string;
}

/** The configuration cannot be used; lists every problem. Exit code 2. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  readonly problems: readonly ConfigProblem[];

  constructor(problems: readonly ConfigProblem[]) {
    const count = problems.length === 1 ? "1 problem" : `${problems.length} problems`;
    const lines = problems.map((problem) => `  - ${problem.path}: ${problem.message}`);
    super(`the configuration has ${count}:\n${lines.join("\n")}`);
    this.problems = problems;
  }
}

/** The same problems, told as those of a cell. */
export function configErrorOf(cell: string, { problems }: ConfigError): ConfigError {
  return new ConfigError(problems.map(({ path, message }) => ({ path: `cell ${cell}, ${path}`, message })));
}

export type StoreErrorCode =
  /** No connection, or it broke: the statement may or may not have run. Try again. */
  | "unavailable"
  /** Serialization failure, deadlock, lock or statement timeout: rolled back. Try again. */
  | "contention"
  /** The data of some row is refused (wrong type, too long, a constraint). The same batch fails again. */
  | "data"
  /** A unique key has the values of some row already. The same batch fails again. */
  | "duplicate"
  /** A trigger, a policy or a view's check of the owner refuses this row; another row may pass. */
  | "refused"
  /**
   * Code of the owner cannot change this row now (a lock of its trigger, a deadlock there): rolled back. Another row
   * may pass, and this one later.
   */
  | "busy"
  /** A trigger of the owner drops what is written to this row, without an error; another row may pass. */
  | "skipped"
  /** The schema does not fit: a table or column is missing, or rights are; or the table refuses every row. */
  | "schema"
  | "other";

class CodedError<C extends string> extends Error {
  readonly code: C;

  constructor(code: C, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** A statement of the store failed. `message` names the statement and holds no row data. */
export class StoreError extends CodedError<StoreErrorCode> {
  override readonly name = "StoreError";
}

/** Some cells failed. `message` names them and says what was done in the others; the reasons are in `cause`. */
export class CellError extends StoreError {
  readonly cells: readonly string[];

  constructor(code: StoreErrorCode, cells: readonly string[], message: string, options?: ErrorOptions) {
    super(code, message, options);
    this.cells = cells;
  }
}

/** @returns such as `the cells a and b` */
export function cellNames(names: readonly string[]): string {
  if (names.length === 1) return `the cell ${names[0]}`;
  return `the cells ${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

const PASSING: ReadonlySet<StoreErrorCode> = new Set(["unavailable", "contention", "busy"]);

/** Whether an error of the database may pass by itself, as in a restart. */
export function mayPass(error: unknown): boolean {
  return error instanceof StoreError && PASSING.has(error.code);
}

const REFUSALS: ReadonlySet<StoreErrorCode> = new Set(["data", "duplicate", "refused", "busy", "skipped"]);

/** Whether the database refuses a row, by its data or a rule: the statement would pass without it. */
export function isRefused(error: unknown): error is StoreError {
  return error instanceof StoreError && REFUSALS.has(error.code);
}

interface PublishErrorOptions extends ErrorOptions {
  readonly retryAfterMs?: number | undefined;
  readonly isPermanent?: boolean | undefined;
  readonly status?: string | undefined;
}

/**
 * A delivery failed. The reason is not redacted yet: `core/redact` cleans it before log and store. The code is from the
 * adapter's own closed list, such as `status_5xx` or `timeout`.
 */
export class PublishError extends CodedError<string> {
  override readonly name = "PublishError";
  /** How long the receiver told us to wait, in ms (HTTP `Retry-After`). */
  readonly retryAfterMs: number | undefined;
  /** This row can never be delivered: it is dead at once, whatever attempts are left. */
  readonly isPermanent: boolean;
  /** The receiver's own code: an HTTP status, an AMQP reply code, the name of a Kafka error. */
  readonly status: string | undefined;

  constructor(code: string, message: string, options?: PublishErrorOptions) {
    super(code, message, options);
    this.retryAfterMs = options?.retryAfterMs;
    this.isPermanent = options?.isPermanent ?? false;
    this.status = options?.status;
  }
}

export type TransformErrorCode =
  | "invalid_expression"
  | "invalid_input"
  /** The expression failed on this input. */
  | "failed"
  /** The result is nothing, or is not a JSON value (a function, a number that is not finite). */
  | "no_result"
  | "timeout"
  | "too_deep"
  /** More memory, or a longer sequence, than an evaluation may have. */
  | "too_large"
  /** The worker that evaluated it ended by itself or was ended by somebody else, twice. */
  | "lost"
  /** It was not run, since too much waits: try again. */
  | "busy"
  /** The evaluator was closed meanwhile. */
  | "closed";

/** A transform gave no result. The message is written for the expression's author; it may quote the payload. */
export class TransformError extends CodedError<TransformErrorCode> {
  override readonly name = "TransformError";
}

/** Whether the expression or its input failed, and not an evaluator that is busy, closed or unable to start. */
export function isTransformFailure(error: unknown): error is TransformError {
  return error instanceof TransformError && error.code !== "closed" && error.code !== "busy";
}

/** The abort reason of signals that stop the process: an interruption, never a failed attempt. */
export class StoppingError extends Error {
  override readonly name = "StoppingError";

  constructor(message = "the service is stopping") {
    super(message);
  }
}

/** The abort reason when a claim's lease ran out or was taken over while its row was in delivery. */
export class ClaimLostError extends Error {
  override readonly name = "ClaimLostError";

  constructor(message = "the claim on this row was lost") {
    super(message);
  }
}

/**
 * The text of any thrown value: its message, with the code of a system error and the causes.
 *
 * @param depth most causes and parts to follow: a chain may be circular
 */
export function errorText(error: unknown, depth = 5): string {
  if (!(error instanceof Error)) return textOfValue(error);
  const code = (error as { code?: unknown }).code;
  const own = typeof code === "string" && !error.message.includes(code) ? `${code} ${error.message}` : error.message;
  // An AggregateError of a dual-stack connect has an empty message; its parts have the causes.
  const parts =
    error instanceof AggregateError && depth > 0
      ? error.errors.map((part) => errorText(part, depth - 1)).join("; ")
      : "";
  const text = [own.trim(), parts].filter((part) => part !== "").join(": ") || error.name;
  if (error.cause === undefined || error.cause === null || depth === 0) return text;
  const cause = errorText(error.cause, depth - 1);
  return text.includes(cause) ? text : `${text} (${cause})`;
}

/** Some libraries throw plain objects. */
function textOfValue(value: unknown): string {
  const message = typeof value === "object" && value !== null ? (value as { message?: unknown }).message : undefined;
  return typeof message === "string" ? message : String(value);
}

/**
 * For reads of tables that may be missing.
 *
 * @returns undefined if the table is missing or closed to this user
 * @throws any other error
 */
export function withoutTable(error: unknown): undefined {
  if (!(error instanceof StoreError && error.code === "schema")) throw error;
}

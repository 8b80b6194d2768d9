import sql from "mssql";
import type { Reserved } from "../sql/reserve.ts";
import { joined, type Row, signature, type Values } from "../sql/rows.ts";

/** Text is `nvarchar`: a `varchar` is converted at each comparison, and a `max` type prevents an index seek. */
const TYPES = {
  int: sql.Int,
  bigint: sql.BigInt,
  bit: sql.Bit,
  uuid: sql.UniqueIdentifier,
  /** At most 4,000 characters; compared with columns. */
  text: sql.NVarChar(4000),
  /** Any length: JSON batches and stored texts, never compared with a column. */
  longText: sql.NVarChar(sql.MAX),
  /** An array, which the statement reads as JSON. */
  list: sql.NVarChar(sql.MAX),
  /** Milliseconds. DATEADD takes an `int`: the longest time is 24.8 days. */
  ms: sql.Int,
  /** Any length, cut into texts by the statement: see {@link textBatch}. */
  bytes: sql.VarBinary(sql.MAX),
} as const;

export type ParameterType = keyof typeof TYPES;

/** A statement with its name for errors and logs. Its text is always the same: every value is a typed parameter. */
export interface Statement extends Reserved {
  readonly text: string;
  /** `@name` in the text to its type. */
  readonly parameters: Readonly<Record<string, ParameterType>>;
  /** Longest run in ms; after it the statement is cancelled. Default 60 s. */
  readonly timeoutMs?: number;
  /** Longest wait for a lock in ms; -1 for any time. Default 2 s: a locked row costs a pass, not a minute. */
  readonly lockTimeoutMs?: number;
}

/**
 * A statement by its {@link signature}, each parameter with its type, as in `jobs.list(limit int)`; its SQL follows.
 *
 * @throws Error for a type that is not one of {@link TYPES}
 */
export function statement(
  declaration: string,
  options: Pick<Statement, "timeoutMs" | "lockTimeoutMs" | "use"> = {},
): (text: string | TemplateStringsArray, ...parts: readonly (string | number)[]) => Statement {
  const { name, parameters } = signature(declaration);
  const types = Object.fromEntries(parameters.map((parameter) => typed(name, parameter)));
  return (text, ...parts) => ({ ...options, name, parameters: types, text: joined(text, parts) });
}

function typed(statement: string, declaration: string): readonly [name: string, type: ParameterType] {
  const [name = "", type = ""] = declaration.split(" ");
  if (!Object.hasOwn(TYPES, type)) throw new Error(`${statement}: the parameter ${name} has no known type: "${type}"`);
  return [name, type as ParameterType];
}

const DEFAULT_REQUEST_TIMEOUT_MS = 60_000;
/** `READPAST` skips locked rows, but waits for locks of pages and tables (Microsoft Learn, "Table hints"). */
const DEFAULT_LOCK_TIMEOUT_MS = 2000;

/**
 * @returns the rows of every result set, in order
 * @throws Error when a parameter has no value, and what the driver throws
 */
export async function execute(
  on: sql.ConnectionPool | sql.Transaction,
  statement: Statement,
  values: Values,
): Promise<readonly (readonly Row[])[]> {
  const requestTimeout = statement.timeoutMs ?? DEFAULT_REQUEST_TIMEOUT_MS;
  // The types of the driver's declarations lag behind it: a request takes its own timeout.
  const request = (on as unknown as { request(options: { requestTimeout: number }): sql.Request }).request({
    requestTimeout,
  });
  for (const [name, type] of Object.entries(statement.parameters)) {
    const value = values[name];
    if (value === undefined) throw new Error(`${statement.name}: no value for the parameter @${name}`);
    request.input(name, TYPES[type], encoded(type, value));
  }
  const { lockTimeoutMs = DEFAULT_LOCK_TIMEOUT_MS } = statement;
  const { recordsets } = await request.query(`SET LOCK_TIMEOUT ${lockTimeoutMs};\n${statement.text}`);
  return recordsets as unknown as Row[][];
}

/**
 * The answers of a statement with changes: a trigger of the owner that selects answers before them.
 *
 * @param results of {@link execute}
 */
export function answersOf(results: readonly (readonly Row[])[], count: number): readonly (readonly Row[])[] {
  return results.slice(-count);
}

function encoded(type: ParameterType, value: unknown): unknown {
  if (value === null) return null;
  if (type === "list") return JSON.stringify(value);
  return type === "ms" ? Math.min(Math.round(Number(value)), 2 ** 31 - 1) : value;
}

import { createHash } from "node:crypto";
import type { Socket } from "node:net";
import type pg from "pg";
import type { Reserved } from "../sql/reserve.ts";
import { joined, signature, type Values } from "../sql/rows.ts";

export interface Statement extends Reserved {
  readonly text: string;
  readonly parameters?: readonly string[];
  /** Longest run in ms, after which the connection is closed. Default 60 s. */
  readonly timeoutMs?: number;
  /**
   * Longest wait for a lock in ms, of a statement `byIndex`; by default a little less than `timeoutMs`. The server
   * gives up itself: after a client's timeout its connection would keep waiting.
   */
  readonly lockTimeoutMs?: number;
  /** Longest run of a statement `byIndex` in ms, after which the server ends it; by default none. */
  readonly serverTimeoutMs?: number;
  /** Whether it must find its rows by the indexes made for it; see {@link BY_INDEX}. */
  readonly byIndex?: boolean;
  /** Of a statement `byIndex`: one plan for all values. The planner keeps it by itself only if it seems cheaper. */
  readonly onePlan?: boolean;
  readonly takesTurns?: boolean;
}

type Options = Pick<Statement, "timeoutMs" | "lockTimeoutMs" | "serverTimeoutMs" | "onePlan" | "takesTurns" | "use">;
type Template = (text: string | TemplateStringsArray, ...parts: readonly string[]) => Statement;

/** A statement by its {@link signature}, with the names of `$1`, `$2` and so on; its SQL follows as a template. */
export function statement(declaration: string, options: Options = {}): Template {
  return (text, ...parts) => ({ ...options, ...signature(declaration), text: joined(text, parts) });
}

/** The same for a statement that must find its rows by the indexes made for it; see {@link BY_INDEX}. */
export function byIndex(declaration: string, options: Options = {}): Template {
  return (text, ...parts) => ({ ...statement(declaration, options)(text, ...parts), byIndex: true });
}

export const READ_COMMITTED = "BEGIN ISOLATION LEVEL READ COMMITTED";

/**
 * The statistics of a queue are always old: the planner takes a table analysed when empty to have few pending rows, and
 * reads it whole, or by a bitmap of every pending row, for each batch of a hundred: 51 ms instead of 1 ms for one part
 * of a relay pass. Without those plans a claim reads its index in order and stops at its limit. Sorts are off too:
 * reading another index whole and sorting it took 195 ms for the bound of a retention sweep. The penalty of an
 * inevitable sort would trigger JIT, which takes longer than the statement.
 */
const BY_INDEX = [
  // A statement sees what was committed before it, whatever the default: waits for the locks of rows need that.
  READ_COMMITTED,
  "SET LOCAL enable_seqscan = off",
  "SET LOCAL enable_bitmapscan = off",
  "SET LOCAL enable_sort = off",
  "SET LOCAL jit = off",
].join("; ");

/** Longest run of a statement by default: a server that hangs (a black-holed connection) must not stop a role. */
export const LONGEST_MS = 60_000;
const LOCK_TIMEOUT_MARGIN_MS = 500;

function beginning(statement: Statement): string {
  const { timeoutMs = LONGEST_MS, serverTimeoutMs, onePlan } = statement;
  const { lockTimeoutMs = timeoutMs - LOCK_TIMEOUT_MARGIN_MS } = statement;
  const parts = [BY_INDEX];
  if (onePlan) parts.push("SET LOCAL plan_cache_mode = force_generic_plan");
  parts.push(`SET LOCAL lock_timeout = ${lockTimeoutMs}`);
  if (serverTimeoutMs !== undefined) parts.push(`SET LOCAL statement_timeout = ${serverTimeoutMs}`);
  return parts.join("; ");
}

/**
 * The settings of a `byIndex` statement are local to its transaction, so that they also work behind a transaction
 * pooler; the three messages are sent together (pipeline mode) and cost one round trip.
 *
 * @param prepare whether the connection prepares the statement under its name
 * @throws what the driver throws
 */
export async function execute(
  client: pg.PoolClient,
  statement: Statement,
  values: readonly unknown[],
  prepare: boolean,
): Promise<pg.QueryResult> {
  const query = queryConfig(statement, values, prepare);
  if (statement.byIndex !== true) return await client.query(query);
  // Those behind it wait for it.
  const asLong = (text: string) => ({ text, query_timeout: query.query_timeout });
  const socket = socketOf(client);
  // Together in one write: each of its own wakes the server.
  socket.cork();
  const sent = [
    client.query(asLong(beginning(statement))),
    client.query(query),
    // After a failed statement this is a rollback.
    client.query(asLong("COMMIT")),
  ] as const;
  socket.uncork();
  const [begun, result, committed] = await Promise.allSettled(sent);
  if (begun.status === "rejected") throw begun.reason;
  if (result.status === "rejected") throw result.reason;
  if (committed.status === "rejected") throw committed.reason;
  return result.value;
}

/** Runs one statement of a transaction. @throws what the driver throws */
export async function runIn(client: pg.ClientBase, statement: Statement, values: Values): Promise<pg.QueryResult> {
  return await client.query(statement.text, [...valuesInOrder(statement, values)]);
}

/** The values of `$1`, `$2` and so on; others are ignored. @throws Error when a parameter has no value */
export function valuesInOrder({ name, parameters = [] }: Statement, values: Values): readonly unknown[] {
  return parameters.map((parameter) => {
    const value = values[parameter];
    if (value === undefined) throw new Error(`${name}: no value for the parameter ${parameter}`);
    return value;
  });
}

/** The driver has no public way to break off a connection, or to batch its writes. */
export function socketOf(client: pg.ClientBase): Pick<Socket, "destroy" | "cork" | "uncork"> {
  return (client as unknown as { connection: { stream: Socket } }).connection.stream;
}

function queryConfig(
  statement: Statement,
  values: readonly unknown[],
  prepare: boolean,
): pg.QueryConfig & { query_timeout: number } {
  return {
    ...(prepare ? { name: preparedName(statement.text) } : {}),
    text: statement.text,
    values: values as unknown[],
    query_timeout: statement.timeoutMs ?? LONGEST_MS,
  };
}

const preparedNames = new Map<string, string>();

/**
 * Parsed and planned once per connection: half the cost of a small batch. A digest, for connections shared by a pooler.
 */
function preparedName(text: string): string {
  let name = preparedNames.get(text);
  if (name === undefined) {
    name = `svc_${createHash("sha256").update(text).digest("hex").slice(0, 32)}`;
    preparedNames.set(text, name);
  }
  return name;
}

/**
 * Array parameters are binary (`array_recv`): dimensions, null flag, element type, then length and bytes of each
 * element.
 */

/** Values of array parameters, each of one property of some rows. @param properties by the name of the parameter */
export function arraysOf<T, Name extends string>(rows: readonly T[], properties: Readonly<Record<Name, keyof T>>) {
  const arrays = Object.entries<keyof T>(properties).map(([name, property]) => [
    name,
    rows.map((row) => row[property]),
  ]);
  return Object.fromEntries(arrays) as Record<Name, T[keyof T][]>;
}

/**
 * Encodes a `text[]` parameter. The driver would write one escaped text, which the server parses character by
 * character: a third of the cost of an insert of 20 rows of 1 kB.
 *
 * @param values at least one element
 */
export function textArray(values: readonly (string | null)[]): Buffer {
  let total = HEADER_BYTES;
  // Plain loops: this runs for every column of every row that comes in.
  for (const value of values) total += LENGTH_BYTES + (value === null ? 0 : Buffer.byteLength(value));
  const buffer = arrayOf(TEXT_OID, values.length, total);
  let at = HEADER_BYTES;
  for (const value of values) {
    const length = value === null ? -1 : buffer.write(value, at + LENGTH_BYTES, "utf8");
    buffer.writeInt32BE(length, at);
    at += LENGTH_BYTES + Math.max(0, length);
  }
  return buffer;
}

/** Encodes a `uuid[]` parameter: half of its size as text, and nothing to parse. @throws TypeError for other text */
export function uuidArray(values: readonly string[]): Buffer {
  const buffer = arrayOf(UUID_OID, values.length, HEADER_BYTES + values.length * (LENGTH_BYTES + UUID_BYTES));
  let at = HEADER_BYTES;
  for (const value of values) {
    buffer.writeInt32BE(UUID_BYTES, at);
    const digits = value.replaceAll("-", "");
    if (digits.length !== 2 * UUID_BYTES || buffer.write(digits, at + LENGTH_BYTES, "hex") !== UUID_BYTES) {
      throw new TypeError(`${JSON.stringify(value)} is not a UUID`);
    }
    at += LENGTH_BYTES + UUID_BYTES;
  }
  return buffer;
}

function arrayOf(elementType: number, length: number, bytes: number): Buffer {
  const buffer = Buffer.allocUnsafe(bytes);
  buffer.writeInt32BE(1, 0); // dimensions
  buffer.writeInt32BE(1, 4); // there may be nulls
  buffer.writeInt32BE(elementType, 8);
  buffer.writeInt32BE(length, 12);
  buffer.writeInt32BE(1, 16); // lower bound
  return buffer;
}

const HEADER_BYTES = 20;
const LENGTH_BYTES = 4;
const UUID_BYTES = 16;
const TEXT_OID = 25;
const UUID_OID = 2950;

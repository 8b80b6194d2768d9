import { createHash } from "node:crypto";
import type { Socket } from "node:net";
import type pg from "pg";
import { joined, type Values } from "../sql/rows.ts";

/** A statement with its name for errors and logs. */
export interface Statement {
  readonly name: string;
  readonly text: string;
  /** The names of the values of `$1`, `$2` and so on. */
  readonly parameters?: readonly string[];
  /** Longest run in ms; after it the connection is given up. Default 60 s. */
  readonly timeoutMs?: number;
  /**
   * Longest wait for a lock in ms, of a statement `byIndex`; by default a little less than it may run. The server gives up
   * itself then: whoever only stops listening leaves a connection of the server's behind that goes on waiting.
   */
  readonly lockTimeoutMs?: number;
  /** True for a statement that must find its rows by the indexes made for it; see {@link BY_INDEX}. */
  readonly byIndex?: boolean;
  /**
   * Of a statement `byIndex`: true keeps one plan for all values. The planner keeps it by itself only where it takes it for cheaper than those it makes for
   * known values, and it has no idea of unknown arrays.
   */
  readonly onePlan?: boolean;
  /** True for a short statement that may be sent behind another such one on its connection; see `Pipeline`. Not together with `byIndex`. */
  readonly isPipelined?: boolean;
}

type Options = Pick<Statement, "timeoutMs" | "lockTimeoutMs" | "onePlan">;
type Template = (text: string | TemplateStringsArray, ...parts: readonly string[]) => Statement;

/** A statement by its name and the names of `$1`, `$2` and so on; its SQL follows as a template. */
export function statement(name: string, parameters: readonly string[] = [], options: Options = {}): Template {
  return (text, ...parts) => ({ ...options, name, parameters, text: joined(text, parts) });
}

/** The same for a statement that must find its rows by the indexes made for it; see {@link BY_INDEX}. */
export function byIndex(name: string, parameters: readonly string[] = [], options: Options = {}): Template {
  return (text, ...parts) => ({ ...statement(name, parameters, options)(text, ...parts), byIndex: true });
}

/**
 * A statement for each row limit in use. The planner takes a parameter for a tenth of the table, finds every plan that it has made for known
 * values cheaper than the general one, and so plans each claim anew: 2 of the 14 ms of a claim of 200.
 */
export function perLimit(make: (limit: string) => Statement): (limit: number) => Statement {
  const made = new Map<number, Statement>();
  return (limit) => {
    let statement = made.get(limit);
    if (statement === undefined) {
      statement = make(String(limit));
      made.set(limit, statement);
    }
    return statement;
  };
}

/**
 * The planner goes by statistics, and those of a queue are always old: a table that was analysed when it was empty is thought to have few
 * pending rows, and is then read whole, or by a bitmap of every pending row, for each batch of a hundred. Measured with a
 * backlog that had come in since the last analysis: 51 ms instead of 1 ms for one part of a relay pass. With the other ways
 * switched off a claim reads its index in order and stops at its limit, whatever the statistics say. Sorts are discouraged for the same reason:
 * reading another index whole and sorting it took 195 ms for the bound of a retention sweep, where statistics knew of no finished row. Where a sort
 * cannot be avoided its penalty would make the server compile the statement, which takes longer than running it.
 */
const BY_INDEX = [
  "BEGIN",
  "SET LOCAL enable_seqscan = off",
  "SET LOCAL enable_bitmapscan = off",
  "SET LOCAL enable_sort = off",
  "SET LOCAL jit = off",
].join("; ");

const DEFAULT_QUERY_TIMEOUT_MS = 60_000;
/** In which the server reports that it has given up. */
const LOCK_TIMEOUT_MARGIN_MS = 500;

function beginning({ timeoutMs = DEFAULT_QUERY_TIMEOUT_MS, lockTimeoutMs, onePlan }: Statement): string {
  const locks = `SET LOCAL lock_timeout = ${lockTimeoutMs ?? timeoutMs - LOCK_TIMEOUT_MARGIN_MS}`;
  return `${BY_INDEX}; ${locks}${onePlan ? "; SET LOCAL plan_cache_mode = force_generic_plan" : ""}`;
}

/**
 * Runs one statement. The settings of a `byIndex` statement live in its own transaction, so that they also work behind a transaction pooler
 * and leak to nobody; the three messages go out together (pipeline mode) and cost one round trip.
 *
 * @param prepare whether the connection keeps the statement under its name from now on
 * @param values in the order of the parameters
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
  const socket = socketOf(client);
  // Together in one write: each of its own wakes the server.
  socket.cork();
  const sent = [
    client.query(beginning(statement)),
    client.query(query),
    // After a failed statement this is a rollback.
    client.query("COMMIT"),
  ] as const;
  socket.uncork();
  const [begun, result, committed] = await Promise.allSettled(sent);
  if (begun.status === "rejected") throw begun.reason;
  if (result.status === "rejected") throw result.reason;
  if (committed.status === "rejected") throw committed.reason;
  return result.value;
}

/**
 * The values of `$1`, `$2` and so on.
 *
 * @param values by name, more than the statement declares do no harm
 * @throws Error when a parameter has no value
 */
export function valuesInOrder({ name, parameters = [] }: Statement, values: Values): readonly unknown[] {
  return parameters.map((parameter) => {
    const value = values[parameter];
    if (value === undefined) throw new Error(`${name}: no value for the parameter ${parameter}`);
    return value;
  });
}

/** Whether a statement failed without being executed because of what its connection has prepared. 26000: nothing of that name; 42P05: it exists already. */
export function isPreparationLost(error: unknown): boolean {
  const { code } = error as { code?: unknown };
  return code === "26000" || code === "42P05" || isPlanOutdated(error);
}

/** "cached plan must not change result type": a column of the table was altered. */
export function isPlanOutdated(error: unknown): boolean {
  const { code, routine } = error as { code?: unknown; routine?: unknown };
  // The message comes in the server's language.
  return code === "0A000" && routine === "RevalidateCachedQuery";
}

/** The driver has no public way to break a connection off, nor to gather what it writes. */
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
    // A server that hangs (a black-holed connection) must not hold a role for ever.
    query_timeout: statement.timeoutMs ?? DEFAULT_QUERY_TIMEOUT_MS,
  };
}

const preparedNames = new Map<string, string>();

/**
 * The name under which a statement is prepared, so that it is parsed and planned once a connection: half of what a small batch costs. The
 * name is a digest of the text: whoever has prepared this name on a connection that a pooler shares has prepared the same statement.
 */
function preparedName(text: string): string {
  let name = preparedNames.get(text);
  if (name === undefined) {
    name = `svc_${createHash("sha256").update(text).digest("hex").slice(0, 32)}`;
    preparedNames.set(text, name);
  }
  return name;
}

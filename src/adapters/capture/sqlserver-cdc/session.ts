import type { Socket } from "node:net";
import sql from "mssql";
import { atMost } from "../../../time/wait.ts";
import { type Endpoint, serverConfig } from "../../stores/sqlserver/endpoints.ts";
import type { Statement } from "./statements.ts";

export type Row = Readonly<Record<string, unknown>>;

export interface Session {
  /** @param values of all parameters @throws the driver's error; also when the session is closed meanwhile */
  query(statement: Statement, values: Readonly<Record<string, string>>): Promise<readonly Row[]>;
  /** Disconnects at once, whatever runs. Does not throw. */
  close(): Promise<void>;
}

/** Connects. @throws the driver's error */
export type OpenSession = (endpoint: Endpoint, signal: AbortSignal) => Promise<Session>;

/** Longest time for a connection, whatever the endpoint says. */
export const MAX_CONNECT_MS = 15_000;
export const REQUEST_TIMEOUT_MS = 10_000;
const CLOSE_TIMEOUT_MS = 1000;
/** The one connection is used many times a second: the pool never closes it as idle. */
const NEVER_IDLE_MS = 86_400_000;

type Connection = Parameters<NonNullable<sql.config["beforeConnect"]>>[0];

export const openSession: OpenSession = async (endpoint, signal) => {
  signal.throwIfAborted();
  const connections = new Set<Connection>();
  const pool = new sql.ConnectionPool(
    connectionConfig(endpoint, (connection) => {
      connections.add(connection);
      connection.once("end", () => connections.delete(connection));
    }),
  );
  // A connection that breaks between two statements fails the next one; without a listener it would end the process.
  pool.on("error", () => {});
  const connecting = pool.connect();

  const disconnect = async (): Promise<void> => {
    // The pool alone would wait for the running statement, and refuses to close while it connects.
    for (const connection of connections) endAtOnce(connection);
    await connecting.catch(() => {});
    await pool.close().catch(() => {});
  };
  let closed: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closed ??= atMost(CLOSE_TIMEOUT_MS, disconnect());
    return closed;
  };

  signal.addEventListener("abort", close, { once: true });
  try {
    await connecting;
    signal.throwIfAborted();
  } catch (error) {
    await close();
    throw error;
  } finally {
    signal.removeEventListener("abort", close);
  }
  return { query: async (statement, values) => await run(pool, statement, values), close };
};

/** The driver's configuration: as the store's, except for times and pool. @param onConnection before each connects */
export function connectionConfig(endpoint: Endpoint, onConnection: (connection: Connection) => void): sql.config {
  const connectionTimeout = Math.min(endpoint.connectionTimeoutMs, MAX_CONNECT_MS);
  return {
    ...serverConfig(endpoint),
    connectionTimeout,
    requestTimeout: REQUEST_TIMEOUT_MS,
    pool: {
      min: 0,
      max: 1,
      acquireTimeoutMillis: connectionTimeout,
      idleTimeoutMillis: NEVER_IDLE_MS,
      reapIntervalMillis: NEVER_IDLE_MS,
    },
    // The default sends an extra statement before each of ours.
    validateConnection: "socket",
    beforeConnect: onConnection,
  };
}

async function run(
  pool: sql.ConnectionPool,
  { name, text, parameters }: Statement,
  values: Readonly<Record<string, string>>,
): Promise<readonly Row[]> {
  const request = pool.request();
  for (const parameter of parameters) {
    const value = values[parameter];
    if (value === undefined) throw new Error(`${name}: no value for the parameter @${parameter}`);
    request.input(parameter, sql.NVarChar(4000), value);
  }
  const { recordset } = await request.query<Row>(text);
  return recordset ?? [];
}

/** Closes whatever the connection does now. One without a socket yet is closed again at its next step. */
function endAtOnce(connection: Connection): void {
  let isEnding = false;
  const end = (): void => {
    if (isEnding) return;
    isEnding = true;
    // Without an error a waiting login continues, and its timer with it.
    (connection as unknown as { readonly socket?: Socket }).socket?.destroy(new Error("the session is closed"));
    connection.close();
    isEnding = false;
  };
  connection.on("debug", end);
  end();
}

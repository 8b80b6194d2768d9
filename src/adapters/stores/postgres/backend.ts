import type pg from "pg";
import { StoreError } from "../../../model/errors.ts";

/** The server process behind a connection. */
export interface Backend {
  /** Undefined until the server has told. */
  pid: number | undefined;
}

/** Asks the server which process of its own serves a connection; behind a pooler that holds until the end of the transaction. */
export async function backendOf(client: pg.ClientBase): Promise<number> {
  const { rows } = await client.query("SELECT pg_backend_pid() AS pid");
  return (rows[0] as { pid: number }).pid;
}

/**
 * Asks over another connection whether a server process still works for its client.
 *
 * @throws StoreError `unavailable` when it is gone, or has been waiting for its client for seconds while that waits for it; what the driver throws
 *   when the server does not answer
 */
export async function checkWorking(observer: pg.Client, { pid }: Backend): Promise<void> {
  if (pid === undefined) throw lost("the server has not answered on this connection");
  const { rows } = await observer.query({ text: STATE, values: [pid], query_timeout: TIMEOUT_MS } as pg.QueryConfig);
  const [row] = rows as { gone: boolean; idle: boolean | null }[];
  if (row?.gone) throw lost("its server process is gone");
  if (row?.idle) throw lost("the server waits for the next statement: an answer was lost on the way");
}

function lost(reason: string): StoreError {
  return new StoreError("unavailable", `the connection is given up: ${reason}`);
}

const TIMEOUT_MS = 3000;
/** A standby, to which a pooler may send the question, knows nothing of the process. */
const STATE = `
SELECT a.pid IS NULL AND NOT pg_is_in_recovery() AS gone,
  a.state LIKE 'idle%' AND a.state_change < clock_timestamp() - interval '3 seconds' AS idle
FROM (SELECT $1::int AS pid) asked LEFT JOIN pg_stat_activity a USING (pid)`;

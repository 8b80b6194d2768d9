import type { ChangeLog, LogEvents, LogPosition } from "../../../ports/capture.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { Clock } from "../../../time/clock.ts";
import type { Endpoint } from "../../stores/sqlserver/endpoints.ts";
import { CaptureFault, driverFault, notReadable } from "./faults.ts";
import {
  beginning,
  type CaptureInstance,
  captureJobNotice,
  findInstance,
  lsnOf,
  type Query,
  RESTORED,
  write,
} from "./instance.ts";
import { type OpenSession, openSession, type Row, type Session } from "./session.ts";
import { NO_LSN, poll, type SourceTable } from "./statements.ts";

export interface SqlServerCdcOptions extends Endpoint {
  /** The outbox table, with the name of its id column. */
  readonly table: SourceTable;
  /** Pause between two polls in ms. Default 100. */
  readonly pollIntervalMs?: number;
  readonly clock: Clock;
  readonly log: Log;
  /** Waits; ends early when the signal aborts. */
  readonly wait: (ms: number, signal: AbortSignal) => Promise<unknown>;
}

const DEFAULT_POLL_INTERVAL_MS = 100;

/**
 * Sees inserts into the outbox in the change data capture of SQL Server: its capture job scans the log and writes
 * changes into a table, which this polls. An insert is seen no sooner than the job's next scan.
 *
 * @param open makes the connection
 */
export function sqlServerCdc(options: SqlServerCdcOptions, open: OpenSession = openSession): ChangeLog {
  const { database, table } = options;
  let noticed: string | undefined;
  return {
    follow: async (from, events, signal) => {
      let session: Session | undefined;
      const close = () => void session?.close();
      try {
        session = await opened(options, open, signal);
        signal.addEventListener("abort", close, { once: true });
        signal.throwIfAborted();
        const query = queryOf(session, options);
        const captured = await findInstance(query, table, database);
        const notice = await captureJobNotice(query, captured);
        // Once, and not again at each connection, as long as it is the same.
        const told = JSON.stringify(notice);
        if (noticed !== told) write(options.log, notice);
        noticed = told;
        const position = await beginning(query, table, captured, from, options.log);
        events.following();
        if (position !== from && position !== NO_LSN) events.reached(position);
        await pollLog(query, options, captured, position, events, signal);
      } catch (error) {
        if (!signal.aborted) throw error;
      } finally {
        signal.removeEventListener("abort", close);
        await session?.close();
      }
    },
  };
}

async function opened(options: SqlServerCdcOptions, open: OpenSession, signal: AbortSignal): Promise<Session> {
  try {
    return await open(options, signal);
  } catch (error) {
    throw driverFault(options, error);
  }
}

function queryOf(session: Session, endpoint: Endpoint): Query {
  return async (statement, values) => {
    try {
      return await session.query(statement, values);
    } catch (error) {
      throw driverFault(endpoint, error, statement);
    }
  };
}

/** Polls until the signal aborts. */
async function pollLog(
  query: Query,
  options: SqlServerCdcOptions,
  found: CaptureInstance,
  begin: LogPosition,
  events: LogEvents,
  signal: AbortSignal,
): Promise<void> {
  const { table, database, clock, log, wait, pollIntervalMs = DEFAULT_POLL_INTERVAL_MS } = options;
  let instance = found;
  let position = begin;
  let isJustFound = true;
  while (!signal.aborted) {
    const row = await pollOnce(query, table, instance, position);
    if (row instanceof CaptureFault) {
      // Its owner may have replaced the instance; a fault of a new instance is final.
      if (isJustFound) throw row;
      instance = await findInstance(query, table, database);
      isJustFound = true;
      continue;
    }
    isJustFound = false;
    if (Number(row.inserted) === 1) {
      // A server whose clock is set back, as in autumn, gives an age below 0.
      events.inserted(clock.now() - Math.max(0, Number(row.age_ms)));
    }
    const reached = lsnOf(row.reached);
    if (reached !== null && reached !== position) {
      if (reached < position) log.warn({ captureInstance: instance.name, position, highest: reached }, RESTORED);
      position = reached;
      events.reached(position);
    }
    await wait(pollIntervalMs, signal);
  }
}

/** @returns a fault when the server refuses, or when the instance is gone or no longer readable */
async function pollOnce(
  query: Query,
  table: SourceTable,
  instance: CaptureInstance,
  position: LogPosition,
): Promise<Row | CaptureFault> {
  try {
    const [row = {}] = await query(poll(instance.name), { position, instance: instance.name });
    return lsnOf(row.lowest) === NO_LSN ? notReadable(table, instance.user, instance.role) : row;
  } catch (error) {
    if (error instanceof CaptureFault && error.number !== undefined) return error;
    throw error;
  }
}

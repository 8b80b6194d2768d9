import type { LogPosition } from "../../../ports/capture.ts";
import type { Log } from "../../../ports/runtime.ts";
import { CaptureFault, databaseNotEnabled, notReadable, tableNotEnabled, tableNotVisible } from "./faults.ts";
import type { Row } from "./session.ts";
import {
  ADD_JOB,
  DATABASE,
  INSTANCES,
  JOB,
  JOB_ACTIVITY,
  NO_LSN,
  RANGE,
  SCAN_WITHOUT_PAUSE,
  SHOW_JOBS,
  type SourceTable,
  START_JOB,
  type Statement,
  tableName,
} from "./statements.ts";

/** Runs a statement; throws a `CaptureFault`. */
export type Query = (statement: Statement, values: Readonly<Record<string, string>>) => Promise<readonly Row[]>;

/** What captures the changes of the table. */
export interface CaptureInstance {
  readonly name: string;
  /** The gating role; undefined when there is none. */
  readonly role: string | undefined;
  /** The database user, for messages. */
  readonly user: string;
  /** Azure SQL Database: no SQL Server Agent and no `msdb`. */
  readonly isAzureDatabase: boolean;
}

/** `SERVERPROPERTY('EngineEdition')` of Azure SQL Database. */
const AZURE_SQL_DATABASE = 5;

/** Object unknown or access denied; not enabled for the table; `SELECT` denied; `EXECUTE` denied. */
const DENIED = new Set<number | undefined>([22981, 22985, 229, 230]);

/**
 * Finds the capture instance of a table: the newest, since a replacement is made before the old one is dropped.
 *
 * @throws CaptureFault with the statement that fixes it
 */
export async function findInstance(query: Query, table: SourceTable, database: string): Promise<CaptureInstance> {
  const [state] = await query(DATABASE, { table: tableName(table) });
  if (!state?.is_cdc_enabled) throw databaseNotEnabled(database);
  const user = String(state.user_name);
  const isTracked = state.is_tracked_by_cdc;
  if (isTracked === null || isTracked === undefined) throw tableNotVisible(table, database, user);
  if (!isTracked) throw tableNotEnabled(table);

  const [newest] = (await instances(query, table)).toSorted((a, b) => createdAt(b) - createdAt(a));
  // The table is captured, and the procedure shows what the user may read.
  if (newest === undefined) throw notReadable(table, user);
  return {
    name: String(newest.capture_instance),
    role: typeof newest.role_name === "string" ? newest.role_name : undefined,
    user,
    isAzureDatabase: Number(state.engine_edition) === AZURE_SQL_DATABASE,
  };
}

async function instances(query: Query, table: SourceTable): Promise<readonly Row[]> {
  try {
    return await query(INSTANCES, { schema: table.schema, table: table.name });
  } catch (error) {
    if (error instanceof CaptureFault && DENIED.has(error.number)) return [];
    throw error;
  }
}

function createdAt(row: Row): number {
  return row.create_date instanceof Date ? row.create_date.getTime() : 0;
}

/** A line of the log. */
interface Notice {
  readonly level: "info" | "warn";
  readonly message: string;
  readonly fields: Readonly<Record<string, string | number>>;
}

const warning = (message: string, fields: Notice["fields"]): Notice => ({ level: "warn", message, fields });
const info = (message: string, fields: Notice["fields"]): Notice => ({ level: "info", message, fields });

/** Microsoft Learn, "Change data capture (CDC) with Azure SQL Database": the frequency cannot be changed. */
const AZURE_SCAN_INTERVAL_SECONDS = 20;

/**
 * How often the log is scanned for changes, in words: no insert is seen before the next scan.
 *
 * @throws CaptureFault when the connection breaks; a missing right is only logged
 */
export async function captureJobNotice(query: Query, { isAzureDatabase }: CaptureInstance): Promise<Notice> {
  if (isAzureDatabase) {
    return warning(
      "Azure SQL Database scans its log for changes at a fixed interval: inserts are seen later than by polling at the default outbox.pollIntervalMs, so capture is not worth it here",
      { scanIntervalSeconds: AZURE_SCAN_INTERVAL_SECONDS },
    );
  }
  try {
    const [job] = await query(JOB, {});
    if (job === undefined) {
      return warning(
        "the database has no capture job: no insert is seen, unless the log reader of a transactional publication captures the changes",
        { remedy: ADD_JOB },
      );
    }
    if (!(await isRunning(query))) {
      return warning(
        "the capture job is not running: no insert is seen, and the database's log is not truncated, until SQL Server Agent runs it again",
        { remedy: START_JOB },
      );
    }
    if (!job.continuous) {
      return warning("the capture job scans the log only when its schedule starts it: inserts are seen no sooner", {
        remedy: SCAN_WITHOUT_PAUSE,
      });
    }
    const scanIntervalSeconds = Number(job.pollinginterval);
    if (!(scanIntervalSeconds > 0)) {
      return info("the capture job scans the log without a pause", { scanIntervalSeconds: 0 });
    }
    return warning(
      "the capture job pauses between two scans of the log: inserts are seen up to that much later, which is slower than polling at the default outbox.pollIntervalMs",
      { scanIntervalSeconds, remedy: SCAN_WITHOUT_PAUSE },
    );
  } catch (error) {
    if (!isRefusal(error)) throw error;
    return info(
      "how often the capture job scans the log could not be read: inserts are seen no sooner than that, which is 5 s unless it was changed",
      { reason: error.message, check: SHOW_JOBS, remedy: SCAN_WITHOUT_PAUSE },
    );
  }
}

export function write(log: Log, { level, message, fields }: Notice): void {
  log[level](fields, message);
}

/** True also when the user may not see it: rights on `cdc_jobs` alone do not show it. */
async function isRunning(query: Query): Promise<boolean> {
  try {
    const [activity] = await query(JOB_ACTIVITY, {});
    return Number(activity?.running) > 0;
  } catch (error) {
    if (!isRefusal(error)) throw error;
    return true;
  }
}

/** The server answers, and refuses. */
function isRefusal(error: unknown): error is CaptureFault {
  return error instanceof CaptureFault && error.number !== undefined;
}

/** As `CONVERT(nvarchar(22), ..., 1)` writes a `binary(10)`; so the order of the texts is the order of the LSNs. */
const LSN = /^0x[0-9A-F]{20}$/;

/** An LSN of the server; null when it has none, as before the first scan of the capture job. */
export function lsnOf(value: unknown): LogPosition | null {
  return typeof value === "string" && LSN.test(value) ? value : null;
}

/**
 * Where to begin: at the saved position when everything after it is still there, else at what the capture job has
 * reached.
 *
 * @param from the saved position; null for none
 * @throws CaptureFault when the instance may not be read
 */
export async function beginning(
  query: Query,
  table: SourceTable,
  instance: CaptureInstance,
  from: LogPosition | null,
  log: Log,
): Promise<LogPosition> {
  const [range] = await query(RANGE, { instance: instance.name });
  const lowest = lsnOf(range?.lowest);
  if (lowest === NO_LSN) throw notReadable(table, instance.user, instance.role);
  const highest = lsnOf(range?.highest);
  const present = highest ?? NO_LSN;
  if (lowest === null || highest === null) {
    log.warn(
      { captureInstance: instance.name },
      "the capture job has not yet scanned the log for this table: no insert is seen before it does",
    );
  }
  if (from === null) return present;
  const problem = problemOf(from, lowest, present);
  if (problem === undefined) return from;
  log.warn(
    { captureInstance: instance.name, position: from, lowest: lowest ?? "none", highest: highest ?? "none" },
    problem,
  );
  return present;
}

/** Why a saved position is not used; undefined when it is. */
function problemOf(from: LogPosition, lowest: LogPosition | null, present: LogPosition): string | undefined {
  if (lsnOf(from) === null)
    return "the saved position is not an LSN: capture begins at the present, the poller finds what came before";
  if (from > present) return RESTORED;
  if (lowest !== null && from < lowest) {
    return "the saved position is older than the first change that is still kept, by a cleanup or a new capture instance: capture begins at the present, the poller finds what came before";
  }
  return undefined;
}

export const RESTORED =
  "the position lies beyond the end of the captured changes, as after a restore or a failover: capture begins at the present, the poller finds what came before";

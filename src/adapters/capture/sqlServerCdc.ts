import { errorText } from "../../model/errors.ts";
import type { ChangeLog, LogEvents, LogPosition } from "../../ports/capture.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { pause } from "../../time/wait.ts";
import type { Endpoint } from "../stores/sqlserver/endpoints.ts";
import { SqlServerPool } from "../stores/sqlserver/pool.ts";
import { type Statement, statement } from "../stores/sqlserver/statement.ts";

interface SourceTable {
  readonly schema: string;
  readonly name: string;
  /** The primary key, the one column that a capture instance must have. */
  readonly idColumn: string;
}

export interface SqlServerCdcOptions {
  readonly server: Endpoint;
  readonly table: SourceTable;
  readonly clock: Clock;
  readonly log: Log;
}

type Connection = Pick<SqlServerPool, "run" | "close">;

const MAX_CONNECT_MS = 15_000;
const POLL_INTERVAL_MS = 100;

/**
 * Sees inserts into the outbox in the change data capture of SQL Server: its capture job scans the log and writes
 * changes into a table, which this polls. An insert is seen no sooner than the job's next scan.
 */
export function sqlServerCdc(options: SqlServerCdcOptions, open = connectionTo): ChangeLog {
  const { host, database } = options.server;
  return {
    async follow(from, events, signal) {
      if (signal.aborted) return;
      const connection = open(options);
      try {
        await pollLog(connection, options, from, events, signal);
      } catch (error) {
        if (!signal.aborted) throw new Error(`${host}, database ${database}: ${errorText(error)}`, { cause: error });
      } finally {
        await connection.close();
      }
    },
  };
}

function connectionTo({ server, log }: SqlServerCdcOptions): Connection {
  return new SqlServerPool({ ...server, loginTimeoutMs: MAX_CONNECT_MS, poolSize: 1 }, log);
}

/** Polls until the signal aborts. @throws Error with what to do, also when the capture instance was replaced */
async function pollLog(
  connection: Connection,
  { table, clock }: SqlServerCdcOptions,
  from: LogPosition | null,
  events: LogEvents,
  signal: AbortSignal,
): Promise<void> {
  const { name: instance, user, role } = await findInstance(connection, table);
  const pollInstance = poll(instance);
  let position = lsnOf(from);
  let isFollowing = false;
  while (!signal.aborted) {
    const [row] = await connection.run(pollInstance, { position, instance });
    if (row?.lowest === NO_LSN) throw notReadable(table, user, role);
    if (!isFollowing) events.following();
    isFollowing = true;
    // A server whose clock is set back, as in autumn, gives an age below 0.
    if (Number(row?.inserted) === 1) events.inserted(clock.now() - Math.max(0, Number(row?.age_ms)));
    // None before the first scan of the capture job. An earlier one after a restore or a failover.
    const reached = lsnOf(row?.reached);
    if (reached !== null && reached !== position) events.reached(reached);
    position = reached ?? position ?? NO_LSN;
    await pause(POLL_INTERVAL_MS, signal);
  }
}

/**
 * Finds the capture instance of the table: the newest, since a replacement is made before the old one is dropped.
 *
 * @throws Error with the statement that fixes it
 */
async function findInstance(connection: Connection, table: SourceTable) {
  const [state] = await connection.run(DATABASE, { table: tableName(table) });
  if (!state?.is_cdc_enabled) {
    throw new Error(`change data capture is off: run ${ENABLE_DATABASE} there as a sysadmin`);
  }
  const user = String(state.user_name);
  if (state.is_tracked_by_cdc === null) {
    throw new Error(
      `there is no table ${tableName(table)} that user ${user} may see: check outbox.capture.schema and the table's name, or run ${grantSelect(table, user)}`,
    );
  }
  if (!state.is_tracked_by_cdc) {
    throw new Error(`table ${tableName(table)} has no capture instance: run ${enableTable(table)} as db_owner`);
  }
  const instances = await connection.run(INSTANCES, { schema: table.schema, table: table.name });
  const [newest] = instances.toSorted((a, b) => Number(b.create_date) - Number(a.create_date));
  // The table is captured, and the procedure shows what the user may read.
  if (newest === undefined) throw notReadable(table, user, null);
  return { name: String(newest.capture_instance), role: newest.role_name, user };
}

/** @param role the gating role of the capture instance; null when there is none, or when it is unknown */
function notReadable(table: SourceTable, user: string, role: unknown): Error {
  const membership =
    typeof role === "string"
      ? `ALTER ROLE ${quoted(role)} ADD MEMBER ${quoted(user)};`
      : "membership in the gating role of the capture instance, if it has one";
  return new Error(
    `user ${user} may not read the changes of table ${tableName(table)}: it needs SELECT on every captured column, ${grantSelect(table, user)} and ${membership}`,
  );
}

/** As `CONVERT(nvarchar(22), ..., 1)` writes a `binary(10)`. */
const LSN = /^0x[0-9A-F]{20}$/;
/** What the functions return for an instance that does not exist, or that this user may not read. */
const NO_LSN = "0x00000000000000000000";

function lsnOf(value: unknown): LogPosition | null {
  return typeof value === "string" && LSN.test(value) ? value : null;
}

/**
 * Change data is read by the documented functions, not from the system tables: they require only `SELECT` on the
 * captured columns of the outbox table and membership in the gating role of the capture instance, if there is one.
 */
const LIMIT = { timeoutMs: 10_000 };

/** What this user sees of database and table. By name: in Azure `DB_ID()` may differ from its `database_id`. */
export const DATABASE = statement("capture.database(table text)", LIMIT)`
SELECT d.is_cdc_enabled, t.is_tracked_by_cdc, USER_NAME() AS user_name
FROM sys.databases d
LEFT JOIN sys.tables t ON t.object_id = OBJECT_ID(@table)
WHERE d.name = DB_NAME();`;

/** The capture instances of the table, at most two. */
export const INSTANCES = statement("capture.instances(schema text, table text)", LIMIT)`
EXEC sys.sp_cdc_help_change_data_capture @source_schema = @schema, @source_name = @table;`;

/**
 * How far the capture job has come and, when that is further than before, the newest insert since. The function never
 * gets a range that it refuses (error 313): it begins at the lowest LSN if a cleanup passed the position, and is not
 * called for an empty one, or without a position. Commit times are local times without an offset, so the result is an
 * age; `DATEDIFF_BIG`, as 25 days in ms exceed an int.
 */
export function poll(instance: string): Statement {
  return statement("capture.poll(position text, instance text)", LIMIT)`
SET NOCOUNT ON;
DECLARE @from varbinary(10) = CONVERT(varbinary(10), @position, 1);
DECLARE @to varbinary(10) = sys.fn_cdc_get_max_lsn();
DECLARE @lowest varbinary(10) = sys.fn_cdc_get_min_lsn(@instance);
DECLARE @first varbinary(10);
DECLARE @newest varbinary(10);
IF @to > @from
BEGIN
  SET @first = sys.fn_cdc_increment_lsn(@from);
  IF @first < @lowest SET @first = @lowest;
  IF @lowest > ${NO_LSN} AND @first <= @to
    SELECT TOP (1) @newest = c.[__$start_lsn]
    FROM [cdc].${quoted(`fn_cdc_get_all_changes_${instance}`)}(@first, @to, N'all') c
    WHERE c.[__$operation] = 2
    ORDER BY c.[__$start_lsn] DESC;
END;
SELECT CONVERT(nvarchar(22), @to, 1) AS reached, CONVERT(nvarchar(22), @lowest, 1) AS lowest,
  CASE WHEN @newest IS NULL THEN 0 ELSE 1 END AS inserted,
  DATEDIFF_BIG(millisecond, sys.fn_cdc_map_lsn_to_time(@newest), SYSDATETIME()) AS age_ms;`;
}

const ENABLE_DATABASE = "EXEC sys.sp_cdc_enable_db;";

/**
 * Captures the id alone: only the insert counts, and a captured `nvarchar(max)` column would refuse values longer than
 * the server's "max text repl size" (64 KB by default).
 */
function enableTable({ schema, name, idColumn }: SourceTable): string {
  return `EXEC sys.sp_cdc_enable_table @source_schema = ${literal(schema)}, @source_name = ${literal(name)}, @role_name = NULL, @supports_net_changes = 0, @captured_column_list = ${literal(quoted(idColumn))};`;
}

function grantSelect(table: SourceTable, user: string): string {
  return `GRANT SELECT ON ${tableName(table)} TO ${quoted(user)};`;
}

/** The table in brackets, for `OBJECT_ID` and for people. */
function tableName({ schema, name }: SourceTable): string {
  return `${quoted(schema)}.${quoted(name)}`;
}

function quoted(identifier: string): string {
  return `[${identifier.replaceAll("]", "]]")}]`;
}

function literal(text: string): string {
  return `N'${text.replaceAll("'", "''")}'`;
}

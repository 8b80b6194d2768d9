/**
 * Every statement that is sent, and every statement that a message proposes. Change data is read by the documented
 * functions, not from the system tables: they require only `SELECT` on the captured columns of the outbox table and
 * membership in the gating role of the capture instance, where there is one.
 */

/** A statement with its name for errors. Its values are parameters, all of them text. */
export interface Statement {
  readonly name: string;
  readonly text: string;
  readonly parameters: readonly string[];
}

/** The table whose inserts are captured. */
export interface SourceTable {
  readonly schema: string;
  readonly name: string;
  /** The primary key, the one column that a capture instance must have. */
  readonly idColumn: string;
}

/** The table in brackets, for `OBJECT_ID` and for people. */
export function tableName({ schema, name }: SourceTable): string {
  return `${quoted(schema)}.${quoted(name)}`;
}

/** What this user sees of database and table. By name: in Azure `DB_ID()` may differ from its `database_id`. */
export const DATABASE: Statement = {
  name: "database",
  text: `
SELECT d.is_cdc_enabled, t.is_tracked_by_cdc, USER_NAME() AS user_name, CONVERT(int, SERVERPROPERTY(N'EngineEdition')) AS engine_edition
FROM sys.databases d
LEFT JOIN sys.tables t ON t.object_id = OBJECT_ID(@table)
WHERE d.name = DB_NAME();`,
  parameters: ["table"],
};

/** The capture instances of the table, at most two. */
export const INSTANCES: Statement = {
  name: "capture instances",
  text: "EXEC sys.sp_cdc_help_change_data_capture @source_schema = @schema, @source_name = @table;",
  parameters: ["schema", "table"],
};

/** From where to where an instance has changes. */
export const RANGE: Statement = {
  name: "range",
  text: `
SELECT CONVERT(nvarchar(22), sys.fn_cdc_get_min_lsn(@instance), 1) AS lowest, CONVERT(nvarchar(22), sys.fn_cdc_get_max_lsn(), 1) AS highest;`,
  parameters: ["instance"],
};

/** The capture job of the database; no row when there is none. Not for Azure SQL Database, which has no `msdb`. */
export const JOB: Statement = {
  name: "capture job",
  text: `
SELECT j.continuous, j.pollinginterval
FROM msdb.dbo.cdc_jobs j
WHERE j.database_id = DB_ID() AND j.job_type = N'capture';`,
  parameters: [],
};

/** Whether the capture job runs now, according to the SQL Server Agent that started last. */
export const JOB_ACTIVITY: Statement = {
  name: "capture job's activity",
  text: `
SELECT COUNT(*) AS running
FROM msdb.dbo.cdc_jobs j
JOIN msdb.dbo.sysjobactivity a ON a.job_id = j.job_id
WHERE j.database_id = DB_ID() AND j.job_type = N'capture'
  AND a.session_id = (SELECT MAX(s.session_id) FROM msdb.dbo.syssessions s)
  AND a.start_execution_date IS NOT NULL AND a.stop_execution_date IS NULL;`,
  parameters: [],
};

/**
 * How far the capture job has come and, when that is further than before, the newest insert since. The function never
 * gets a range that it refuses (error 313): it begins at the lowest LSN where a cleanup passed the position, and is not
 * called for an empty one. Commit times are local times without an offset, so the result is an age; `DATEDIFF_BIG`, as
 * 25 days in ms exceed an int.
 *
 * @param instance name of the capture instance
 */
export function poll(instance: string): Statement {
  return {
    name: "poll",
    text: `
SET NOCOUNT ON;
DECLARE @from varbinary(10) = CONVERT(varbinary(10), @position, 1);
DECLARE @to varbinary(10) = sys.fn_cdc_get_max_lsn();
DECLARE @lowest varbinary(10);
DECLARE @first varbinary(10);
DECLARE @newest varbinary(10);
IF @to > @from
BEGIN
  SET @lowest = sys.fn_cdc_get_min_lsn(@instance);
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
  DATEDIFF_BIG(millisecond, sys.fn_cdc_map_lsn_to_time(@newest), SYSDATETIME()) AS age_ms;`,
    parameters: ["position", "instance"],
  };
}

/** What the functions return for an instance that does not exist, or that this user may not read. */
export const NO_LSN = "0x00000000000000000000";

/** Proposals to the operator. */
export const ENABLE_DATABASE = "EXEC sys.sp_cdc_enable_db;";

/**
 * Captures the id alone: only the insert counts, and a captured `nvarchar(max)` column would refuse values longer than
 * the server's "max text repl size" (64 KB by default).
 */
export function enableTable({ schema, name, idColumn }: SourceTable): string {
  return `EXEC sys.sp_cdc_enable_table @source_schema = ${literal(schema)}, @source_name = ${literal(name)}, @role_name = NULL, @supports_net_changes = 0, @captured_column_list = ${literal(quoted(idColumn))};`;
}

export function grantSelect(table: SourceTable, user: string): string {
  return `GRANT SELECT ON ${tableName(table)} TO ${quoted(user)};`;
}

/** @param role the gating role of the capture instance */
export function addMember(role: string, user: string): string {
  return `ALTER ROLE ${quoted(role)} ADD MEMBER ${quoted(user)};`;
}

export const SCAN_WITHOUT_PAUSE = [
  "EXEC sys.sp_cdc_change_job @job_type = N'capture', @continuous = 1, @pollinginterval = 0;",
  "EXEC sys.sp_cdc_stop_job @job_type = N'capture';",
  "EXEC sys.sp_cdc_start_job @job_type = N'capture';",
].join(" ");
export const ADD_JOB = "EXEC sys.sp_cdc_add_job @job_type = N'capture', @pollinginterval = 0;";
export const START_JOB = "EXEC sys.sp_cdc_start_job @job_type = N'capture';";
export const SHOW_JOBS = "EXEC sys.sp_cdc_help_jobs;";

function quoted(identifier: string): string {
  return `[${identifier.replaceAll("]", "]]")}]`;
}

function literal(text: string): string {
  return `N'${text.replaceAll("'", "''")}'`;
}

import { CaptureFault, databaseNotEnabled, notReadable, tableNotEnabled, tableNotVisible } from "./faults.ts";
import type { Row } from "./session.ts";
import { DATABASE, INSTANCES, type SourceTable, type Statement, tableName } from "./statements.ts";

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
 * Finds the capture instance of a table: the newest, since who replaces one makes the new one beside it and drops the old one later.
 *
 * @param database name, for messages
 * @throws CaptureFault with the statement that mends it
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

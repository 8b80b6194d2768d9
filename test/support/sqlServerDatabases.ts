import { randomUUID } from "node:crypto";
import sql from "mssql";
import { TEST_APPLICATION_NAME } from "./databases.ts";
import { eventually } from "./eventually.ts";
import { type SqlServerAddress, sharedSqlServer, testConnection } from "./sqlServer.ts";

/** Values of a test's statement, by parameter name. */
export type TestValues = Readonly<Record<string, string | number | boolean | null>>;

/** A database of its own for a test; `await using` or `drop()` removes it. */
export interface SqlServerDatabase extends AsyncDisposable {
  readonly server: SqlServerAddress;
  readonly name: string;
  /** `jdbc:sqlserver://` URL without user and password, as `database.url` takes it. */
  readonly jdbcUrl: string;
  /** Runs one batch on the test's own connection and gives the rows of its last result set. */
  query<Row = Record<string, unknown>>(text: string, values?: TestValues): Promise<Row[]>;
  /**
   * Waits until nobody but this helper is connected to the database.
   *
   * @throws Error that names the connections when that takes longer than two seconds
   */
  assertNoConnections(): Promise<void>;
  /** Ends the test's connection and drops the database. Safe to call twice. */
  drop(): Promise<void>;
}

export interface DatabaseOptions {
  /** Whether readers see committed row versions instead of waiting for locks; the server's default when absent. */
  readonly readCommittedSnapshot?: boolean;
}

/** Creates a database with a unique name on the server of this run. */
export async function createSqlServerDatabase(options: DatabaseOptions = {}): Promise<SqlServerDatabase> {
  const server = sharedSqlServer();
  const name = `svc_${randomUUID().replaceAll("-", "")}`;
  const master = await connect(server, "master");
  await run(master, `CREATE DATABASE [${name}]`);
  if (options.readCommittedSnapshot !== undefined) {
    await setReadCommittedSnapshot(master, name, options.readCommittedSnapshot);
  }
  const own = await connect(server, name);
  let dropped: Promise<void> | undefined;
  const dropOnce = async () => {
    await own.close();
    try {
      // The server takes a moment to see that a connection has ended, and drops no database that somebody is in.
      await eventually(() => run(master, `DROP DATABASE [${name}]`), { label: `dropping ${name}` });
    } finally {
      await master.close();
    }
  };
  const drop = () => {
    dropped ??= dropOnce();
    return dropped;
  };
  return {
    server,
    name,
    jdbcUrl:
      `jdbc:sqlserver://${server.host}:${server.port};databaseName=${name};encrypt=${server.encrypt};` +
      `trustServerCertificate=${server.trustServerCertificate}`,
    query: (text, values) => run(own, text, values),
    assertNoConnections: () => assertNoConnections(master, name),
    drop,
    [Symbol.asyncDispose]: drop,
  };
}

async function assertNoConnections(master: sql.ConnectionPool, name: string): Promise<void> {
  await eventually(
    async () => {
      // The server's own sessions have no program name.
      const rows = await run<{ program_name: string; status: string }>(
        master,
        `SELECT program_name, status FROM sys.dm_exec_sessions
         WHERE database_id = DB_ID(@name) AND program_name <> @own`,
        { name, own: TEST_APPLICATION_NAME },
      );
      const left = rows.map((row) => `${row.program_name || "unnamed"} (${row.status})`);
      if (left.length > 0) throw new Error(`still connected: ${left.join("; ")}`);
    },
    { label: `closing every connection to the test database ${name}` },
  );
}

async function setReadCommittedSnapshot(master: sql.ConnectionPool, name: string, on: boolean): Promise<void> {
  try {
    await run(master, `ALTER DATABASE [${name}] SET READ_COMMITTED_SNAPSHOT ${on ? "ON" : "OFF"}`);
  } catch (error) {
    // A server without the option reads in the one way it has.
    if (!/not (currently )?supported/i.test(String(error))) throw error;
  }
}

async function connect(server: SqlServerAddress, database: string): Promise<sql.ConnectionPool> {
  const pool = new sql.ConnectionPool(testConnection(server, database, TEST_APPLICATION_NAME));
  pool.on("error", () => {}); // An idle connection that a test cuts on purpose is no error of the test.
  return await pool.connect();
}

async function run<Row>(pool: sql.ConnectionPool, text: string, values: TestValues = {}): Promise<Row[]> {
  const request = pool.request();
  for (const [name, value] of Object.entries(values)) {
    if (typeof value === "string") request.input(name, sql.NVarChar(sql.MAX), value);
    else request.input(name, value);
  }
  const { recordsets } = await request.query(text);
  return ((recordsets as unknown as Row[][]).at(-1) ?? []) as Row[];
}

import { randomUUID } from "node:crypto";
import pg from "pg";
import { CITUS_SCHEMA, citusUrl, createCitusDatabase, dropCitusDatabase } from "./citus.ts";
import { type PooledServer, sharedPgbouncer, throughPooler } from "./pgbouncer.ts";

/** A database of its own for a test; `await using` or `drop()` removes it. */
export interface TestDatabase extends AsyncDisposable {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  readonly name: string;
  /** `postgres://` URL with user and password. */
  readonly url: string;
  /**
   * `jdbc:postgresql://` URL without them, as `database.url` takes it. If `SVC_TEST_POOLER` asks for that, it leads through the run's PgBouncer, as nothing
   * else here does.
   */
  readonly jdbcUrl: string;
  /** The same, never through PgBouncer: for what a pooler cannot do. */
  readonly directJdbcUrl: string;
  /** Runs one statement on a connection of the test's own and gives its rows. */
  query<Row extends pg.QueryResultRow = pg.QueryResultRow>(sql: string, params?: readonly unknown[]): Promise<Row[]>;
  /** Ends the test's connections; the database stays, for {@link existingDatabase}. Safe to call twice. */
  disconnect(): Promise<void>;
  /** Ends the test's connections and drops the database, ending whatever is still connected. Safe to call twice. */
  drop(): Promise<void>;
}

/** Copying the files takes half the processor time of logging their pages. A given server may be older than PostgreSQL 15, which it takes. */
const AS_FILES = process.env.SVC_TEST_POSTGRES_URL ? "" : " STRATEGY FILE_COPY";

const SCHEMA_PARAMETER = citusUrl() === undefined ? "" : `?currentSchema=${CITUS_SCHEMA}`;

/** Connection names, so that a leak check tells the test's own connections from those of the code under test. */
export const TEST_APPLICATION_NAME = "svc-test";

/**
 * Creates a database with a unique name on the server of this run.
 *
 * @param template an existing database to copy (nobody may be connected to it); an empty database when absent
 */
export async function createDatabase(template?: string): Promise<TestDatabase> {
  const name = `svc_${randomUUID().replaceAll("-", "")}`;
  if (citusUrl() !== undefined) {
    await createCitusDatabase(name, template ?? String(process.env.SVC_TEST_CITUS_TEMPLATE));
  } else {
    const from = template === undefined ? "" : ` TEMPLATE ${pg.escapeIdentifier(template)}`;
    await onServer(`CREATE DATABASE ${pg.escapeIdentifier(name)}${from}${AS_FILES}`);
  }
  return await existingDatabase(name);
}

/**
 * A database that was made by {@link createDatabase}, with new connections.
 *
 * @param outlivesTest whether its idle connections are no leak of the test that opened them
 */
export async function existingDatabase(name: string, outlivesTest = false): Promise<TestDatabase> {
  const url = new URL(serverUrl());
  url.pathname = `/${name}`;
  const pool = new pg.Pool({
    connectionString: url.href,
    application_name: TEST_APPLICATION_NAME,
    max: 4,
    // A connection that does not keep the process alive is not counted as open.
    allowExitOnIdle: outlivesTest,
  });
  pool.on("error", () => {}); // An idle connection that a test cuts on purpose is no error of the test.
  let disconnected: Promise<void> | undefined;
  const disconnect = () => {
    disconnected ??= pool.end();
    return disconnected;
  };
  let dropped: Promise<void> | undefined;
  const dropOnce = async () => {
    await disconnect();
    if (citusUrl() !== undefined) await dropCitusDatabase(name);
    else await onServer(`DROP DATABASE IF EXISTS ${pg.escapeIdentifier(name)} WITH (FORCE)`);
  };
  const drop = () => {
    dropped ??= dropOnce();
    return dropped;
  };
  const port = url.port === "" ? 5432 : Number(url.port);
  const server = {
    host: url.hostname,
    port,
    user: decodeURIComponent(url.username),
    password: decodeURIComponent(url.password),
  };
  const directJdbcUrl = `jdbc:postgresql://${url.hostname}:${port}/${name}${SCHEMA_PARAMETER}`;
  return {
    ...server,
    name,
    url: url.href,
    jdbcUrl: throughPooler() ? await pooledJdbcUrl({ ...server, name }) : directJdbcUrl,
    directJdbcUrl,
    query: async <Row extends pg.QueryResultRow>(sql: string, params: readonly unknown[] = []) =>
      (await pool.query<Row>(sql, [...params])).rows,
    disconnect,
    drop,
    [Symbol.asyncDispose]: drop,
  };
}

/** The `jdbc:postgresql://` URL of a database that leads through the run's PgBouncer, in transaction mode. */
export async function pooledJdbcUrl(database: PooledServer & Pick<TestDatabase, "name">): Promise<string> {
  const pooler = await sharedPgbouncer(database);
  return `jdbc:postgresql://${pooler.host}:${pooler.port}/${database.name}${SCHEMA_PARAMETER}`;
}

/** Runs one statement in the server's maintenance database. */
export async function onServer<Row extends pg.QueryResultRow>(
  sql: string,
  params: readonly unknown[] = [],
): Promise<Row[]> {
  const client = new pg.Client({ connectionString: serverUrl(), application_name: TEST_APPLICATION_NAME });
  await client.connect();
  try {
    return (await client.query<Row>(sql, [...params])).rows;
  } finally {
    await client.end();
  }
}

function serverUrl(): string {
  const url = process.env.SVC_TEST_POSTGRES;
  if (url === undefined || url === "") {
    throw new Error(
      "SVC_TEST_POSTGRES is not set: this test needs the PostgreSQL server that jest's global set-up starts. Run it without `--globalSetup=`.",
    );
  }
  return url;
}

import { describe, expect, test } from "@jest/globals";
import type pg from "pg";
import type { PoolOptions } from "../../src/adapters/stores/postgres/connections.ts";
import { PostgresPool } from "../../src/adapters/stores/postgres/pool.ts";
import { Secret } from "../../src/model/secret.ts";
import { createDatabase, type TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";
import { connectionTo } from "../support/postgresHarness.ts";
import { startPreparingPooler } from "../support/preparingPooler.ts";
import { recordingLog, silentLog } from "../support/recorders.ts";
import { startTcpProxy } from "../support/tcpProxy.ts";
import { within } from "../support/within.ts";

failOnLeaks();

function open(database: TestDatabase, overrides: Partial<PoolOptions> = {}, log = silentLog): PostgresPool {
  return new PostgresPool({ ...connectionTo(database), poolSize: 1, ...overrides }, log);
}

const count = {
  name: "count",
  parameters: ["n"],
  text: "SELECT count(*)::int AS n FROM things WHERE n > $1",
  byIndex: true,
};

describe("the connection pool", () => {
  test("continues without preparation when a pooler loses the prepared statements", async () => {
    await using database = await createDatabase();
    await database.query("CREATE TABLE things (n int)");
    const pool = open(database);
    expect(await pool.run(count, { n: 0 })).toEqual([{ n: 0 }]);

    // What a transaction pooler without support for them does between two transactions, as far as we can tell.
    await pool.run({ name: "lose", text: "DEALLOCATE ALL" });

    expect(await pool.run(count, { n: 0 })).toEqual([{ n: 0 }]);
    expect(await pool.run(count, { n: 0 })).toEqual([{ n: 0 }]);
    expect(await pool.run({ name: "left", text: "SELECT count(*)::int AS n FROM pg_prepared_statements" })).toEqual([
      { n: 0 },
    ]);
    await pool.close();
  });

  test("prepares no more behind a pooler that keeps a prepared statement after its table has changed, and says so", async () => {
    await using database = await createDatabase();
    await database.query("CREATE TABLE things (n int)");
    await database.query("INSERT INTO things VALUES (1)");
    await using pooler = await startPreparingPooler(database);
    const { log, lines } = recordingLog();
    const pool = open(database, { endpoints: [{ host: pooler.host, port: pooler.port, tls: false }] }, log);
    const all = { name: "all", text: "SELECT n FROM things" };
    expect(await pool.run(all)).toEqual([{ n: 1 }]);

    await database.query("ALTER TABLE things ALTER COLUMN n TYPE bigint");

    expect(await within(5000, "the statement", pool.run(all))).toEqual([{ n: "1" }]);
    expect(await pool.run(all)).toEqual([{ n: "1" }]);
    expect(pooler.clients).toBe(2);
    const said = lines.filter(({ level }) => level === "info");
    expect(said).toMatchObject([{ fields: { reason: expect.stringContaining("cached plan") } }]);
    await pool.close();
  });

  test("a statement that meets a deadlock each time fails after four tries, with waits and lines in between", async () => {
    await using database = await createDatabase();
    await database.query("CREATE SEQUENCE tries");
    await database.query(
      "CREATE FUNCTION fail() RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('tries'); RAISE SQLSTATE '40P01'; END $$",
    );
    const { log, lines } = recordingLog();
    const pool = open(database, {}, log);
    const startedAt = performance.now();

    await expect(pool.run({ name: "fail", text: "SELECT fail()" })).rejects.toMatchObject({ name: "StoreError" });

    expect(await database.query("SELECT last_value::int AS n FROM tries")).toEqual([{ n: 4 }]);
    expect(lines.map(({ message }) => message)).toEqual(Array(3).fill("trying a statement again"));
    // At least half of 20, 40 and 80 ms, less what timers round.
    expect(performance.now() - startedAt).toBeGreaterThan(60);
    await pool.close();
  });

  test("settings of a statement that goes by index end with it", async () => {
    await using database = await createDatabase();
    await database.query("CREATE TABLE things (n int)");
    const pool = open(database);
    await pool.run(count, { n: 0 });

    expect(await pool.run({ name: "show", text: "SELECT current_setting('enable_seqscan') AS value" })).toEqual([
      { value: "on" },
    ]);
    await pool.close();
  });

  test("a statement that fails leaves the connection usable and changes nothing", async () => {
    await using database = await createDatabase();
    await database.query("CREATE TABLE things (n int CHECK (n > 0))");
    const pool = open(database);
    const insert = { name: "insert", parameters: ["n"], text: "INSERT INTO things VALUES ($1)", byIndex: true };

    await expect(pool.run(insert, { n: -1 })).rejects.toMatchObject({ name: "StoreError", code: "data" });
    await pool.run(insert, { n: 1 });

    expect(await pool.run(count, { n: 0 })).toEqual([{ n: 1 }]);
    await pool.close();
  });

  test("tries the next host when one does not answer, and stays with the host that does", async () => {
    await using database = await createDatabase();
    const dead = { host: "127.0.0.1", port: await freePort(), tls: false as const };
    const live = { host: database.host, port: database.port, tls: false as const };
    const pool = open(database, { endpoints: [dead, live] });

    expect(await pool.run({ name: "one", text: "SELECT 1 AS n" })).toEqual([{ n: 1 }]);
    await pool.close();
  });

  test("falls back from TLS to a plain connection if the server has none, as sslmode=prefer asks for", async () => {
    await using database = await createDatabase();
    const { host, port } = database;
    const pool = open(database, {
      endpoints: [
        { host, port, tls: { rejectUnauthorized: false } },
        { host, port, tls: false },
      ],
    });

    expect(await pool.run({ name: "one", text: "SELECT 1 AS n" })).toEqual([{ n: 1 }]);
    await pool.close();
  });

  test("a single standby is refused when targetServerType=primary is asked for, and read otherwise", async () => {
    await using database = await createDatabase();
    // To a client a standby is a server whose transactions are read-only.
    await database.query(`ALTER DATABASE "${database.name}" SET default_transaction_read_only = on`);
    const one = { name: "one", text: "SELECT 1 AS n" };
    const [any, primary] = [open(database), open(database, { primaryOnly: true })];

    expect(await any.run(one)).toEqual([{ n: 1 }]);
    await expect(primary.run(one)).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("this host takes no writes"),
    });
    await any.close();
    await primary.close();
  });

  test("an error names the statement and no secret when nothing answers", async () => {
    await using database = await createDatabase();
    const pool = open(database, {
      endpoints: [{ host: "127.0.0.1", port: await freePort(), tls: false }],
      password: new Secret("very-secret"),
    });

    const failure = await pool.run(count, { n: 0 }).catch((error: unknown) => String(error));

    expect(failure).toMatch(/count: .*ECONNREFUSED/);
    expect(failure).not.toContain("very-secret");
    await pool.close();
  });
});

describe("a transaction", () => {
  test("ends with its connection when a statement gets no answer", async () => {
    await using database = await createDatabase();
    await using proxy = await startTcpProxy(database);
    const pool = open(database, { endpoints: [{ host: "127.0.0.1", port: proxy.port, tls: false }] });
    const hanging = pool.transaction({ name: "hang" }, async (client) => {
      proxy.setMode("held");
      await client.query({ text: "SELECT 1", query_timeout: 500 } as pg.QueryConfig);
    });
    await expect(hanging).rejects.toMatchObject({ name: "StoreError", code: "unavailable" });
    proxy.setMode("open");
    expect(await pool.run({ name: "one", text: "SELECT 1 AS n" })).toEqual([{ n: 1 }]);
    await pool.close();
  });
});

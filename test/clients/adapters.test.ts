import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import { sql as drizzleSql } from "drizzle-orm";
import { drizzle, type NodePgDatabase } from "drizzle-orm/node-postgres";
import createKnex, { type Knex } from "knex";
import {
  type Generated,
  Kysely,
  type Transaction as KyselyTransaction,
  sql as kyselySql,
  PostgresDialect,
} from "kysely";
import mssql from "mssql";
import pg from "pg";
import { DataSource, type EntityManager, type QueryRunner } from "typeorm";
import {
  createOutbox,
  enqueue,
  enqueueMany,
  forget,
  fromDrizzle,
  fromKnex,
  fromKysely,
  fromMssql,
  fromPg,
  fromPrisma,
  fromTypeorm,
  type Message,
  once,
  onceTable,
  onceTableSqlServer,
  type Transaction,
} from "../../clients/typescript/src/index.ts";
import { assertEnqueued } from "../../clients/typescript/src/testing.ts";
import type { TestDatabase } from "../support/databases.ts";
import { assertNoConnections, failOnLeaks } from "../support/leaks.ts";
import { databaseCopies, migratedDatabase } from "../support/postgresHarness.ts";
import { describeWithSqlServer, testConnection } from "../support/sqlServer.ts";
import type { SqlServerDatabase } from "../support/sqlServerDatabases.ts";
import { migratedDatabase as migratedSqlServer } from "../support/sqlServerHarness.ts";

/**
 * The adapters of the client for TypeScript with the libraries themselves. Each library's own transaction fits without a cast.
 * Prisma has a stand-in of its type over pg: its generated client and its engine are not among the dependencies.
 */

/** A library that is connected to a database. */
interface Connected {
  /** Commits, or rolls back if `work` rejects. */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

/** The tables, as an application declares them for Kysely. */
interface Tables {
  readonly outbox: { readonly id: Generated<string>; readonly topic: string };
}

const LIBRARIES: Readonly<Record<string, (url: string) => Connected | Promise<Connected>>> = {
  pg(url) {
    const pool = new pg.Pool({ connectionString: url, max: 2 });
    return { transaction: (work) => inTransaction(pool, (client) => work(fromPg(client))), close: () => pool.end() };
  },
  kysely(url) {
    const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: url }) }) });
    return {
      transaction: (work) => db.transaction().execute((trx) => work(fromKysely(trx, kyselySql))),
      close: () => db.destroy(),
    };
  },
  drizzle(url) {
    const pool = new pg.Pool({ connectionString: url });
    const db = drizzle(pool);
    return {
      transaction: (work) => db.transaction((tx) => work(fromDrizzle(tx, drizzleSql))),
      close: () => pool.end(),
    };
  },
  knex(url) {
    const knex = createKnex({ client: "pg", connection: url, pool: { min: 0, max: 2 } });
    return {
      transaction: (work) => knex.transaction((trx) => work(fromKnex(trx))),
      close: () => knex.destroy(),
    };
  },
  async typeorm(url) {
    const source = await new DataSource({ type: "postgres", url }).initialize();
    return {
      transaction: (work) => source.transaction((manager) => work(fromTypeorm(manager))),
      close: () => source.destroy(),
    };
  },
  "typeorm's QueryRunner": async (url) => {
    const source = await new DataSource({ type: "postgres", url }).initialize();
    return {
      async transaction(work) {
        const runner = source.createQueryRunner();
        await runner.startTransaction();
        try {
          const result = await work(fromTypeorm(runner));
          await runner.commitTransaction();
          return result;
        } catch (error) {
          await runner.rollbackTransaction();
          throw error;
        } finally {
          await runner.release();
        }
      },
      close: () => source.destroy(),
    };
  },
  "a stand-in for prisma"(url) {
    const pool = new pg.Pool({ connectionString: url, max: 2 });
    return {
      transaction: (work) => inTransaction(pool, (client) => work(fromPrisma(new PrismaLike(client)))),
      close: () => pool.end(),
    };
  },
};

async function inTransaction<T>(pool: pg.Pool, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    const result = await work(client);
    await client.query("COMMIT");
    return result;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  } finally {
    client.release();
  }
}

/** `$queryRaw` of Prisma's client, which rejects a call without its object and a list that is no template. */
class PrismaLike {
  readonly #client: pg.PoolClient;

  constructor(client: pg.PoolClient) {
    this.#client = client;
  }

  async $queryRaw<T = unknown>(
    query: TemplateStringsArray | { readonly sql: string },
    ...values: unknown[]
  ): Promise<T> {
    if (!("raw" in query)) throw new Error("no template");
    return (
      await this.#client.query(
        query.reduce((text, part, n) => `${text}$${n}${part}`),
        values,
      )
    ).rows as T;
  }
}

const takes = (given: {
  readonly client: pg.Client;
  readonly poolClient: pg.PoolClient;
  readonly trx: KyselyTransaction<Tables>;
  readonly kysely: Kysely<Tables>;
  readonly drizzle: NodePgDatabase;
  readonly drizzleTx: Parameters<Parameters<NodePgDatabase<Readonly<Record<string, never>>>["transaction"]>[0]>[0];
  readonly knex: Knex;
  readonly knexTrx: Knex.Transaction;
  readonly manager: EntityManager;
  readonly runner: QueryRunner;
  readonly mssql: mssql.Transaction;
}): readonly Transaction[] => [
  fromPg(given.client),
  fromPg(given.poolClient),
  fromKysely(given.trx, kyselySql),
  fromKysely(given.kysely, kyselySql, "sqlserver"),
  fromDrizzle(given.drizzle, drizzleSql),
  fromDrizzle(given.drizzleTx, drizzleSql),
  fromKnex(given.knex),
  fromKnex(given.knexTrx, "sqlserver"),
  fromTypeorm(given.manager),
  fromTypeorm(given.runner, "sqlserver"),
  fromMssql(given.mssql),
];

test("the adapters take the libraries' own types without a cast", () => {
  // The compiler checks it.
  expect(takes).toBeInstanceOf(Function);
});

/** Texts that a library might take for a parameter, a quotation or an escape. */
const ODD = String.raw`? ?? \? $1 $2 :name @p1 @0 %s '' " \n {} [] Zoë 😀`;
const FULL = {
  id: "01932c5e-8f3a-7c31-b0d5-1f6a3f6f8a11",
  topic: `orders.paid ${ODD}`,
  key: `o-1 ${ODD}`,
  payload: { text: ODD, list: [1, null] },
  headers: { "x-odd": ODD },
  destination: `there ${ODD}`,
  deliverAt: "2031-02-03T04:05:06.789Z",
  expiresAt: new Date("2032-02-03T04:05:06.789Z"),
} satisfies Message;
const FIELDS = "topic, key, payload, headers, destination";

const copyOf = databaseCopies(async () => {
  const database = await migratedDatabase();
  await database.query(onceTable);
  await database.query(`CREATE SCHEMA "own? $1"`);
  await database.query(
    `CREATE TABLE "own? $1"."out""box ?? :a" (id uuid, topic text, payload text, "the ?key" text, headers jsonb, sequence serial)`,
  );
  return database;
});

describe.each(Object.entries(LIBRARIES))("over %s", (_, connect) => {
  let database: TestDatabase;
  let library: Connected;

  beforeEach(async () => {
    database = await copyOf();
    library = await connect(database.url);
  });
  afterEach(async () => {
    await library.close();
    await assertNoConnections(database);
    await database.drop();
  });
  failOnLeaks();

  const rows = () =>
    database.query(
      `SELECT id, ${FIELDS}, scheduled_at, expires_at, scheduled_at <= now() AS due FROM outbox ORDER BY sequence`,
    );

  test("a transaction that commits leaves the row, with all of its fields", async () => {
    const id = await library.transaction((tx) => enqueue(tx, FULL));
    expect(id).toBe(FULL.id);
    const { deliverAt, expiresAt, payload, ...same } = FULL;
    expect(await rows()).toEqual([
      {
        ...same,
        payload: JSON.stringify(payload),
        scheduled_at: new Date(deliverAt),
        expires_at: expiresAt,
        due: false,
      },
    ]);
  });

  test("a message without key and headers has none", async () => {
    const id = await library.transaction((tx) => enqueue(tx, { topic: "t", json: '{ "a": 1 }', key: null }));
    const none = { key: null, headers: {}, destination: null, expires_at: null, due: true };
    expect(await rows()).toEqual([{ id, topic: "t", payload: '{ "a": 1 }', ...none, scheduled_at: expect.any(Date) }]);
  });

  test("a transaction that rolls back leaves no row", async () => {
    const failed = library.transaction(async (tx) => {
      await enqueue(tx, FULL);
      await assertEnqueued(tx, { topic: FULL.topic, key: FULL.key, payload: FULL.payload, headers: FULL.headers });
      throw new Error("changed my mind");
    });
    await expect(failed).rejects.toThrow("changed my mind");
    expect(await rows()).toEqual([]);
  });

  test("a refused message leaves the transaction usable", async () => {
    await library.transaction(async (tx) => {
      await enqueue(tx, { topic: "first", payload: 1 });
      for (const bad of [{ key: "o\0" }, { topic: " " }, { payload: undefined }, { id: "7" }, { deliverAt: "soon" }]) {
        await expect(enqueue(tx, { topic: "t", payload: 1, ...bad })).rejects.toMatchObject({ name: "EnqueueError" });
      }
      await enqueue(tx, { topic: "second", payload: 2 });
    });
    expect((await rows()).map(({ topic }) => topic)).toEqual(["first", "second"]);
  });

  test("enqueueMany writes several, in their order", async () => {
    const messages = Array.from({ length: 260 }, (_, n) => ({
      topic: `t-${n}`,
      payload: n,
      ...(n % 2 === 0 ? {} : { key: `k-${n}` }),
      ...(n % 3 === 0 ? {} : { headers: { n: String(n) } }),
    }));
    const ids = await library.transaction((tx) => enqueueMany(tx, messages));
    const found = (await rows()).map(({ id, topic, key, headers }) => ({ id, topic, key, headers }));
    expect(found).toEqual(
      messages.map(({ topic, key = null, headers = {} }, n) => ({ id: ids[n], topic, key, headers })),
    );
  });

  test("a table, a schema and columns of other names are quoted", async () => {
    const outbox = createOutbox({ schema: "own? $1", table: 'out"box ?? :a', columns: { key: "the ?key" } });
    await library.transaction((tx) => outbox.enqueue(tx, { topic: "t", payload: ODD, key: ODD, headers: { a: "b" } }));
    expect(
      await database.query(`SELECT topic, payload, "the ?key" AS key, headers FROM "own? $1"."out""box ?? :a"`),
    ).toEqual([{ topic: "t", payload: JSON.stringify(ODD), key: ODD, headers: { a: "b" } }]);
  });

  test("once runs once, again after a rollback, and again when the message is forgotten", async () => {
    let runs = 0;
    const run = (fails = false) =>
      library.transaction(async (tx) => {
        const hasRun = await once(tx, "m-?", async () => void runs++);
        if (fails) throw new Error("no");
        return hasRun;
      });
    await expect(run(true)).rejects.toThrow("no");
    expect([await run(), await run(), runs]).toEqual([true, false, 2]);
    await library.transaction((tx) => forget(tx, 3_600_000));
    expect(await run()).toBe(false);
    await library.transaction((tx) => forget(tx, 0));
    expect([await run(), runs]).toEqual([true, 3]);
  });
});

describeWithSqlServer("over mssql", () => {
  let database: SqlServerDatabase;
  let pool: mssql.ConnectionPool;

  beforeEach(async () => {
    database = await migratedSqlServer();
    await database.query(onceTableSqlServer);
    pool = await new mssql.ConnectionPool(testConnection(database.server, database.name, "svc-client")).connect();
  });
  afterEach(async () => {
    await pool.close();
    await database.assertNoConnections();
    await database.drop();
  });
  failOnLeaks();

  const rows = () =>
    database.query(`SELECT id, topic, [key], payload, headers, destination FROM outbox ORDER BY sequence`);

  async function transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    const own = pool.transaction();
    await own.begin();
    try {
      const result = await work(fromMssql(own));
      await own.commit();
      return result;
    } catch (error) {
      await own.rollback();
      throw error;
    }
  }

  test("a transaction that commits leaves the rows", async () => {
    const ids = await transaction((tx) => enqueueMany(tx, [FULL, { topic: "t", payload: 1 }]));
    const { id, topic, key, payload, headers, destination } = FULL;
    const full = { id, topic, key, payload: JSON.stringify(payload), headers: JSON.stringify(headers), destination };
    const bare = { id: ids[1], topic: "t", key: null, payload: "1", headers: "{}", destination: null };
    expect(await rows()).toEqual([full, bare]);
  });

  test("a transaction that rolls back leaves no row", async () => {
    const failed = transaction(async (tx) => {
      await enqueue(tx, FULL);
      await assertEnqueued(tx, { topic: FULL.topic, key: FULL.key, payload: FULL.payload, headers: FULL.headers });
      throw new Error("changed my mind");
    });
    await expect(failed).rejects.toThrow("changed my mind");
    expect(await rows()).toEqual([]);
  });

  test("a refused message leaves the transaction usable", async () => {
    await transaction(async (tx) => {
      await expect(enqueue(tx, { topic: "t", payload: 1, key: "\0" })).rejects.toMatchObject({ code: "key" });
      await enqueue(tx, { topic: "second", payload: 2 });
    });
    expect((await rows()).map(({ topic }) => topic)).toEqual(["second"]);
  });

  test("once runs once, and again when the message is forgotten", async () => {
    let runs = 0;
    const run = () => transaction((tx) => once(tx, "m-1", async () => void runs++));
    expect([await run(), await run(), runs]).toEqual([true, false, 1]);
    await transaction((tx) => forget(tx, 0));
    expect([await run(), runs]).toEqual([true, 2]);
  });
});

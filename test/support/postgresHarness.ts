import { afterAll } from "@jest/globals";
import type { PoolOptions } from "../../src/adapters/stores/postgres/connections.ts";
import { createPostgresStore } from "../../src/adapters/stores/postgres/index.ts";
import type { TableNames } from "../../src/adapters/stores/sql/names.ts";
import {
  DESTINATION_COLUMNS,
  HISTORY_COLUMNS,
  INBOX_COLUMNS,
  JOURNAL_COLUMNS,
  type MessageId,
  OUTBOX_COLUMNS,
  operationsTables,
} from "../../src/model/rows.ts";
import { Secret } from "../../src/model/secret.ts";
import type { Store } from "../../src/ports/store.ts";
import type { Clock } from "../../src/time/clock.ts";
import {
  type ApplicationRow,
  type InboxRecord,
  ODD_HEADERS,
  type OutboxRecord,
  ROUTING,
  type StoreHarness,
} from "../conformance/store/harness.ts";
import { CITUS_SCHEMA, citusUrl } from "./citus.ts";
import { createDatabase, existingDatabase, type TestDatabase } from "./databases.ts";
import { assertNoConnections } from "./leaks.ts";
import { ManualClock, silentLog } from "./recorders.ts";
import { withStore } from "./schemaChecks.ts";

export const DEFAULT_NAMES: TableNames = {
  schema: citusUrl() === undefined ? undefined : CITUS_SCHEMA,
  inboxTable: "inbox",
  outboxTable: "outbox",
  destinationTable: "outbox_destination",
  historyTable: "outbox_history",
  operations: operationsTables("outbox_"),
  inbox: INBOX_COLUMNS,
  outbox: OUTBOX_COLUMNS,
  destination: DESTINATION_COLUMNS,
  history: HISTORY_COLUMNS,
  journal: JOURNAL_COLUMNS,
};

/** Columns of the outbox that hold a time. */
export const OUTBOX_TIMES = Object.values(OUTBOX_COLUMNS).filter((column) => column.endsWith("_at"));

/** Columns of the destinations' table that hold a time. */
export const DESTINATION_TIMES = Object.values(DESTINATION_COLUMNS).filter((column) =>
  /_(at|until|second)$/.test(column),
);

/** What of a test's database says how to reach it. */
export type Reachable = Pick<TestDatabase, "host" | "port" | "name" | "user" | "password">;

/** How the service reaches a test's database; pool size and names are the caller's. */
export function connectionTo(database: Reachable): Omit<PoolOptions, "poolSize"> {
  return {
    endpoints: [{ host: database.host, port: database.port, tls: false }],
    database: database.name,
    username: database.user,
    password: new Secret(database.password),
    primaryOnly: false,
    applicationName: "svc",
    connectionTimeoutMs: 10_000,
  };
}

/** A store of the service on a test's database; the tables are not made. */
export function postgresStore(
  database: Reachable,
  names = DEFAULT_NAMES,
  clock: Clock = new ManualClock(),
  log = silentLog,
): Store {
  return createPostgresStore({ ...connectionTo(database), poolSize: 4, names, routing: ROUTING }, clock, log);
}

/** Runs `body` with a store on the database and closes it. */
export function withStoreOn<T>(
  database: Reachable,
  names: typeof DEFAULT_NAMES,
  body: (store: Store) => Promise<T>,
): Promise<T> {
  return withStore(postgresStore(database, names), body);
}

/** With the database behind the store. */
export interface PostgresHarness extends StoreHarness {
  readonly database: TestDatabase;
}

/**
 * Opens the shared suite's harness, which fails at its end when a connection was left. A database whose test is over is emptied and used
 * again, with the test's own connections: a new connection costs more than most tests. Call it at the top level of the file or of a `describe` block.
 */
export function postgresHarnesses(): () => Promise<PostgresHarness> {
  const idle: TestDatabase[] = [];
  afterAll(async () => {
    for (const database of idle) await database.drop();
  });
  return async () => await openPostgres(idle.pop() ?? (await keptDatabase()), idle);
}

/**
 * Opens databases that are copies of one, which is made for the first of them. Call it at the top level of the file or of a `describe`
 * block.
 *
 * @param make makes the database to copy; the bundled tables when absent
 */
export function databaseCopies(make = migratedDatabase): () => Promise<TestDatabase> {
  let template: Promise<TestDatabase> | undefined;
  afterAll(async () => {
    await (await template)?.drop();
  });
  const makeTemplate = async () => {
    const database = await make();
    await database.disconnect();
    return database;
  };
  return async () => {
    template ??= makeTemplate();
    return await createDatabase((await template).name);
  };
}

/** A database with the bundled tables. */
export async function migratedDatabase(): Promise<TestDatabase> {
  const database = await createDatabase();
  const store = postgresStore(database);
  await store.schema.migrate();
  await store.close();
  return database;
}

/** The same, for several tests. */
async function keptDatabase(): Promise<TestDatabase> {
  const database = await migratedDatabase();
  await database.disconnect();
  return await existingDatabase(database.name, true);
}

/** Truncates the tables that were written to, and begins their sequences anew. On Citus their files are on another node. */
const EMPTY = `DO $$ DECLARE written text; BEGIN
  SELECT string_agg(oid::regclass::text, ', ') INTO written FROM pg_class
   WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND relname <> 'svc_migrations'
     AND ${citusUrl() === undefined ? "pg_relation_size(oid) > 0" : "true"};
  IF written IS NOT NULL THEN EXECUTE 'TRUNCATE ' || written || ' RESTART IDENTITY'; END IF;
END $$`;

async function openPostgres(database: TestDatabase, idle: TestDatabase[]): Promise<PostgresHarness> {
  const clock = new ManualClock();
  const stores = [postgresStore(database, DEFAULT_NAMES, clock)];
  const [store] = stores as [Store];
  await store.schema.checkColumns();
  return {
    database,
    store,
    clock,
    labels: () => database.query("SELECT destination, routes FROM outbox ORDER BY sequence"),
    async replica(itsClock = new ManualClock()) {
      const replica = postgresStore(database, DEFAULT_NAMES, itsClock);
      stores.push(replica);
      await replica.schema.checkColumns();
      return replica;
    },
    insertOutbox: (rows) => insertOutbox(database, rows),
    outboxRows: () => outboxRows(database),
    inboxRows: () => inboxRows(database),
    async expireLeases() {
      await database.query(
        "UPDATE outbox SET lease_expires_at = now() - interval '1 second' WHERE state = 'processing'",
      );
    },
    async expireMessages() {
      for (const table of ["inbox", "outbox"]) {
        await database.query(
          `UPDATE ${table} SET expires_at = now() - interval '1 second' WHERE expires_at IS NOT NULL`,
        );
      }
    },
    async makeDue() {
      await database.query("UPDATE outbox SET scheduled_at = now() - interval '1 second' WHERE state = 'pending'");
    },
    async reset(id) {
      await database.query("UPDATE outbox SET state = 'pending', attempt = 0, scheduled_at = now() WHERE id = $1", [
        id,
      ]);
    },
    async removeOutbox(ids) {
      await database.query("DELETE FROM outbox WHERE id = ANY ($1::uuid[])", [ids]);
    },
    async finishOutbox(ids, { state, finishedMsAgo = 0, createdMsAgo }) {
      await database.query(
        `UPDATE outbox o SET state = $2, updated_at = t.finished, created_at = coalesce(t.created, o.created_at)
         FROM (SELECT now() - $3 * interval '1 millisecond' AS finished, now() - $4::float * interval '1 millisecond' AS created) t
         WHERE o.id = ANY ($1::uuid[])`,
        [ids, state, finishedMsAgo, createdMsAgo ?? null],
      );
    },
    async finishInbox(ids, { state, receivedMsAgo = 0 }) {
      await database.query(
        `UPDATE inbox SET state = $2, processed_at = now(), created_at = now() - $3 * interval '1 millisecond'
         WHERE id = ANY ($1::uuid[])`,
        [ids, state, receivedMsAgo],
      );
    },
    async expirePullLeases() {
      await database.query(
        "UPDATE inbox SET lease_expires_at = now() - interval '1 second' WHERE lease_expires_at IS NOT NULL",
      );
    },
    async makeInboxDue() {
      await database.query("UPDATE inbox SET scheduled_at = now() - interval '1 second' WHERE state = 'pending'");
    },
    async ageOutbox(ms) {
      await database.query(age("outbox", "id", OUTBOX_TIMES), [ms]);
    },
    async ageDestinations(ms) {
      await database.query(age("outbox_destination", "name", DESTINATION_TIMES), [ms]);
    },
    async [Symbol.asyncDispose]() {
      for (const each of stores) await each.close();
      try {
        await assertNoConnections(database);
        await database.query(EMPTY);
        idle.push(database);
      } catch (error) {
        await database.drop();
        throw error;
      }
    },
  };
}

/** Puts every time of a table back by $1 ms. Citus computes with a column only in a SELECT. */
function age(table: string, key: string, columns: readonly string[]): string {
  const before = columns.map((column) => `${column} - $1 * interval '1 millisecond' AS ${column}`);
  const set = columns.map((column) => `${column} = b.${column}`);
  return `WITH b AS MATERIALIZED (SELECT ${key}, ${before.join(", ")} FROM ${table}),
    aged AS (UPDATE ${table} t SET ${set.join(", ")} FROM b WHERE t.${key} = b.${key} RETURNING 1)
    SELECT count(*) FROM aged`;
}

async function insertOutbox(database: TestDatabase, rows: readonly ApplicationRow[]): Promise<readonly MessageId[]> {
  const inserted = await database.query<{ id: MessageId }>(
    `INSERT INTO outbox (topic, payload, key, max_attempts, scheduled_at, headers, destination, routes)
     SELECT topic, payload, key, coalesce(max_attempts, 5), now() + coalesce(due, 0) * interval '1 millisecond', headers::jsonb,
       destination, routes
     FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::float[], $6::text[], $7::text[], $8::text[])
       WITH ORDINALITY AS r(topic, payload, key, max_attempts, due, headers, destination, routes, n)
     ORDER BY n RETURNING id`,
    [
      rows.map((row) => row.topic ?? "orders"),
      rows.map((row) => row.payload ?? "{}"),
      rows.map((row) => row.key ?? null),
      rows.map((row) => row.maxAttempts ?? null),
      rows.map((row) => row.dueInMs ?? null),
      rows.map((row) => ODD_HEADERS[row.topic ?? ""] ?? "{}"),
      rows.map((row) => row.destination ?? null),
      rows.map((row) => row.routes ?? null),
    ],
  );
  return inserted.map((row) => row.id);
}

async function outboxRows(database: TestDatabase): Promise<readonly OutboxRecord[]> {
  const rows = await database.query(
    `SELECT id, sequence::int AS sequence, topic, key, payload, headers, state, attempt, max_attempts AS "maxAttempts",
       claim_token AS "claimToken", extract(epoch FROM lease_expires_at - now())::float * 1000 AS "leaseInMs",
       extract(epoch FROM scheduled_at - now())::float * 1000 AS "dueInMs", last_error AS "lastError",
       extract(epoch FROM now() - updated_at)::float * 1000 AS "updatedMsAgo",
       extract(epoch FROM now() - created_at)::float * 1000 AS "createdMsAgo"
     FROM outbox ORDER BY sequence`,
  );
  return rows as OutboxRecord[];
}

async function inboxRows(database: TestDatabase): Promise<readonly InboxRecord[]> {
  const rows = await database.query(
    `SELECT id, source, idempotency_key AS "idempotencyKey", payload, state, consumption, processed_at IS NOT NULL AS processed,
       last_error AS "lastError", headers, aggregate_id AS "aggregateId", attempt, claim_token AS "claimToken",
       extract(epoch FROM lease_expires_at - now())::float * 1000 AS "leaseInMs",
       extract(epoch FROM scheduled_at - now())::float * 1000 AS "dueInMs"
     FROM inbox ORDER BY created_at, id`,
  );
  return rows as InboxRecord[];
}

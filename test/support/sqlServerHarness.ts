import { afterAll } from "@jest/globals";
import type { PoolOptions } from "../../src/adapters/stores/sqlserver/endpoints.ts";
import { createSqlServerStore } from "../../src/adapters/stores/sqlserver/index.ts";
import type { MessageId } from "../../src/model/rows.ts";
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
import { serverForBlock } from "./brokers/hooks.ts";
import { DEFAULT_NAMES, DESTINATION_TIMES, OUTBOX_TIMES } from "./postgresHarness.ts";
import { ManualClock, silentLog } from "./recorders.ts";
import {
  createSqlServerDatabase,
  type DatabaseOptions,
  type SqlServerDatabase,
  type TestValues,
} from "./sqlServerDatabases.ts";

/** What the service needs to know of a test's database. */
type Place = Pick<SqlServerDatabase, "server" | "name">;

/** How the service reaches a test's database; pool size and names are the caller's. */
export function connectionToSqlServer({ server, name }: Place): Omit<PoolOptions, "poolSize"> {
  return {
    host: server.host,
    port: server.port,
    instance: undefined,
    database: name,
    username: server.user,
    password: new Secret(server.password),
    encrypt: server.encrypt,
    trustServerCertificate: server.trustServerCertificate,
    hostNameInCertificate: undefined,
    multiSubnetFailover: false,
    loginTimeoutMs: 30_000,
    applicationName: "svc",
    connectionTimeoutMs: 30_000,
  };
}

/** A store of the service on a test's database; the tables are not made. */
export function sqlServerStore(
  database: Place,
  names = DEFAULT_NAMES,
  clock: Clock = new ManualClock(),
  log = silentLog,
): Store {
  return createSqlServerStore({ ...connectionToSqlServer(database), poolSize: 4, names, routing: ROUTING }, clock, log);
}

/**
 * The shared suite's harness, for the tests of a `describe` block: they share a database, since making one takes a server as long as many
 * tests, and each finds its tables empty. A test fails at its end when it left a connection; the next one then gets a new database, since
 * somebody may still be at work in the old one.
 */
export function sqlServerHarness(options: DatabaseOptions = {}): () => Promise<StoreHarness> {
  const databases: SqlServerDatabase[] = [];
  let isLeft = true;
  const makeDatabase = async (): Promise<SqlServerDatabase> => {
    const database = await migratedDatabase(options);
    databases.push(database);
    return database;
  };
  const first = serverForBlock(makeDatabase);
  afterAll(async () => {
    await Promise.all(databases.map((database) => database.drop()));
  });
  return async () => {
    const database = isLeft ? (databases.at(-1) ?? first()) : await makeDatabase();
    isLeft = false;
    return await open(database, () => {
      isLeft = true;
    });
  };
}

/** A database of the test's own with the bundled tables. */
export async function migratedDatabase(options: DatabaseOptions = {}): Promise<SqlServerDatabase> {
  const database = await createSqlServerDatabase(options);
  const store = sqlServerStore(database);
  try {
    await store.schema.migrate();
    await store.schema.checkColumns();
  } finally {
    await store.close();
  }
  return database;
}

/** @param left called when a test has left the database as it should */
async function open(database: SqlServerDatabase, left: () => void): Promise<StoreHarness> {
  await database.query(
    "TRUNCATE TABLE inbox; TRUNCATE TABLE outbox; TRUNCATE TABLE outbox_destination; TRUNCATE TABLE outbox_journal; TRUNCATE TABLE outbox_history; TRUNCATE TABLE outbox_cell;",
  );
  const clock = new ManualClock();
  const stores = [sqlServerStore(database, DEFAULT_NAMES, clock)];
  const [store] = stores as [Store];
  await store.schema.checkColumns();
  return {
    store,
    clock,
    async replica(itsClock = new ManualClock()) {
      const replica = sqlServerStore(database, DEFAULT_NAMES, itsClock);
      stores.push(replica);
      await replica.schema.checkColumns();
      return replica;
    },
    insertOutbox: (rows) => insertOutbox(database, rows),
    outboxRows: () => outboxRows(database),
    labels: () => database.query("SELECT destination, routes FROM outbox ORDER BY sequence"),
    inboxRows: () => inboxRows(database),
    async expireLeases() {
      await database.query(`UPDATE outbox SET lease_expires_at = ${A_SECOND_AGO} WHERE state = N'processing'`);
    },
    async expireMessages() {
      for (const table of ["inbox", "outbox"]) {
        await database.query(`UPDATE ${table} SET expires_at = ${A_SECOND_AGO} WHERE expires_at IS NOT NULL`);
      }
    },
    async makeDue() {
      await database.query(`UPDATE outbox SET scheduled_at = ${A_SECOND_AGO} WHERE state = N'pending'`);
    },
    async reset(id) {
      await database.query(
        "UPDATE outbox SET state = N'pending', attempt = 0, scheduled_at = SYSUTCDATETIME() WHERE id = @id",
        { id },
      );
    },
    async removeOutbox(ids) {
      await database.query(`DELETE FROM outbox WHERE id IN (${IDS})`, { ids: JSON.stringify(ids) });
    },
    async finishOutbox(ids, { state, finishedMsAgo = 0, createdMsAgo }) {
      await database.query(
        `UPDATE outbox SET state = @state, updated_at = ${msAgo("@finished")},
           created_at = CASE WHEN @isCreated = 1 THEN ${msAgo("@created")} ELSE created_at END
         WHERE id IN (${IDS})`,
        {
          ids: JSON.stringify(ids),
          state,
          finished: String(finishedMsAgo),
          isCreated: createdMsAgo !== undefined,
          created: String(createdMsAgo ?? 0),
        },
      );
    },
    async finishInbox(ids, { state, receivedMsAgo = 0 }) {
      await database.query(
        `UPDATE inbox SET state = @state, processed_at = SYSUTCDATETIME(), created_at = ${msAgo("@received")}
         WHERE id IN (${IDS})`,
        { ids: JSON.stringify(ids), state, received: String(receivedMsAgo) },
      );
    },
    async expirePullLeases() {
      await database.query(`UPDATE inbox SET lease_expires_at = ${A_SECOND_AGO} WHERE lease_expires_at IS NOT NULL`);
    },
    async makeInboxDue() {
      await database.query(`UPDATE inbox SET scheduled_at = ${A_SECOND_AGO} WHERE state = N'pending'`);
    },
    async ageOutbox(ms) {
      const aged = OUTBOX_TIMES.map((column) => `${column} = DATEADD(millisecond, -@ms, ${column})`);
      await database.query(`UPDATE outbox SET ${aged.join(", ")}`, { ms });
    },
    async ageDestinations(ms) {
      const aged = DESTINATION_TIMES.map((column) => `${column} = DATEADD(millisecond, -@ms, ${column})`);
      await database.query(`UPDATE outbox_destination SET ${aged.join(", ")}`, { ms });
    },
    async [Symbol.asyncDispose]() {
      for (const each of stores) await each.close();
      await database.assertNoConnections();
      left();
    },
  };
}

const A_SECOND_AGO = "DATEADD(second, -1, SYSUTCDATETIME())";
const IDS = "SELECT CONVERT(uniqueidentifier, [value]) FROM OPENJSON(@ids)";

/** A moment in the past. DATEADD takes no more than 2^31 of a unit, which is 24 days of milliseconds. */
function msAgo(parameter: string): string {
  const ms = `CONVERT(bigint, ${parameter})`;
  return `DATEADD(millisecond, CONVERT(int, -(${ms} % 1000)), DATEADD(second, CONVERT(int, -(${ms} / 1000)), SYSUTCDATETIME()))`;
}

/** Milliseconds between two moments, with their fractions. */
function msBetween(from: string, to: string): string {
  return `CONVERT(float, DATEDIFF_BIG(microsecond, ${from}, ${to})) / 1000`;
}

/** DATEADD takes an `int`, and the furthest time is in the year 9999. */
const IN_DUE_MS =
  "DATEADD(day, CONVERT(int, CONVERT(bigint, due) / 86400000), DATEADD(millisecond, CONVERT(int, CONVERT(bigint, due) % 86400000), SYSUTCDATETIME()))";

/** A statement takes 2,100 parameters. */
const ROWS_PER_INSERT = 250;

async function insertOutbox(
  database: SqlServerDatabase,
  rows: readonly ApplicationRow[],
): Promise<readonly MessageId[]> {
  const ids: MessageId[] = [];
  for (let from = 0; from < rows.length; from += ROWS_PER_INSERT) {
    const part = rows.slice(from, from + ROWS_PER_INSERT);
    const inserted = await database.query<{ id: MessageId }>(
      `DECLARE @inserted TABLE (id uniqueidentifier, sequence bigint);
       INSERT INTO outbox (topic, payload, [key], max_attempts, scheduled_at, headers, destination, routes)
       OUTPUT inserted.id, inserted.sequence INTO @inserted (id, sequence)
       SELECT topic, payload, [key], max_attempts, ${IN_DUE_MS}, headers, destination, routes
       FROM (VALUES ${part.map((_, n) => `(${n}, @topic${n}, @payload${n}, @key${n}, @max${n}, @due${n}, @headers${n}, @destination${n}, @routes${n})`).join(", ")})
         AS r (n, topic, payload, [key], max_attempts, due, headers, destination, routes)
       ORDER BY n;
       SELECT id FROM @inserted ORDER BY sequence;`,
      Object.assign({}, ...part.map(valuesOf)),
    );
    ids.push(...inserted.map((row) => row.id));
  }
  return ids;
}

function valuesOf(row: ApplicationRow, n: number): TestValues {
  return {
    [`topic${n}`]: row.topic ?? "orders",
    [`payload${n}`]: row.payload ?? "{}",
    [`key${n}`]: row.key ?? null,
    [`max${n}`]: row.maxAttempts ?? 5,
    [`due${n}`]: row.dueInMs ?? 0,
    [`headers${n}`]: ODD_HEADERS[row.topic ?? ""] ?? "{}",
    [`destination${n}`]: row.destination ?? null,
    [`routes${n}`]: row.routes ?? null,
  };
}

async function outboxRows(database: SqlServerDatabase): Promise<readonly OutboxRecord[]> {
  const rows = await database.query<OutboxRecord & { readonly headers: string }>(
    `DECLARE @now datetimeoffset(7) = SYSUTCDATETIME();
     SELECT id, CONVERT(int, sequence) AS sequence, topic, [key], payload, headers, state, attempt, max_attempts AS maxAttempts,
       claim_token AS claimToken, ${msBetween("@now", "lease_expires_at")} AS leaseInMs,
       ${msBetween("@now", "scheduled_at")} AS dueInMs, last_error AS lastError,
       ${msBetween("updated_at", "@now")} AS updatedMsAgo, ${msBetween("created_at", "@now")} AS createdMsAgo
     FROM outbox ORDER BY sequence;`,
  );
  return rows.map(withHeaders);
}

async function inboxRows(database: SqlServerDatabase): Promise<readonly InboxRecord[]> {
  const rows = await database.query<InboxRecord & { readonly headers: string }>(
    `DECLARE @now datetimeoffset(7) = SYSUTCDATETIME();
     SELECT id, source, idempotency_key AS idempotencyKey, payload, state, consumption,
       CONVERT(bit, CASE WHEN processed_at IS NULL THEN 0 ELSE 1 END) AS processed, last_error AS lastError, headers,
       aggregate_id AS aggregateId, attempt, claim_token AS claimToken,
       ${msBetween("@now", "lease_expires_at")} AS leaseInMs, ${msBetween("@now", "scheduled_at")} AS dueInMs
     FROM inbox ORDER BY created_at, sequence;`,
  );
  return rows.map(withHeaders);
}

/** The column is text here; the suite looks at what it says. */
function withHeaders<R extends { readonly headers: string }>(row: R): R & { readonly headers: Record<string, string> } {
  return { ...row, headers: JSON.parse(row.headers) };
}

import { expect, test } from "@jest/globals";
import type { TableNames } from "../../src/adapters/stores/sql/names.ts";
import type { RetentionRange } from "../../src/ports/finishedRows.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, relayRequest, sent } from "../conformance/store/harness.ts";
import { claim, ids, pullRequest, receive } from "../conformance/store/pullSupport.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES } from "../support/postgresHarness.ts";
import { describeWithSqlServer } from "../support/sqlServer.ts";
import type { SqlServerDatabase } from "../support/sqlServerDatabases.ts";
import { migratedDatabase, sqlServerStore } from "../support/sqlServerHarness.ts";

interface OwnTables extends AsyncDisposable {
  readonly database: SqlServerDatabase;
  readonly store: Store;
}

/** A database with the bundled tables, and what its owner has done to it. */
async function open(prepare: readonly string[] = [], names: TableNames = DEFAULT_NAMES): Promise<OwnTables> {
  const database = await migratedDatabase();
  for (const statement of prepare) await database.query(statement);
  const store = sqlServerStore(database, names);
  await store.schema.checkColumns();
  return {
    database,
    store,
    async [Symbol.asyncDispose]() {
      await store.close();
      await database.assertNoConnections().finally(() => database.drop());
    },
  };
}

const SAME = { aggregateId: "a" };

describeWithSqlServer("tables of an owner on SQL Server", () => {
  failOnLeaks();

  test("triggers run beside every statement of the service", async () => {
    const trigger = (table: string) =>
      `CREATE TRIGGER ${table}_log ON ${table} AFTER INSERT, UPDATE, DELETE AS
       BEGIN INSERT INTO log SELECT N'${table}' FROM deleted UNION ALL SELECT N'${table}' FROM inserted; END`;
    await using own = await open(["CREATE TABLE log (what nvarchar(20))", trigger("inbox"), trigger("outbox")]);
    const { database, store } = own;
    const rows = ids(await receive(own, [SAME, SAME]));
    const held = await claim(own);
    expect(await store.pull.extend(held, 5000)).toEqual(rows);
    expect(await store.pull.acknowledge(held)).toEqual(rows);

    await receive(own, [{ ...SAME, consumption: "push" }]);
    expect((await store.inbox.relay(relayRequest())).relayed).toBe(1);
    const delivered = (await store.outbox.claim(claimRequest())).rows;
    expect((await store.outbox.settle(delivered.map(sent))).closed).toEqual(new Set(ids(delivered)));
    const scope = await store.replay.begin();
    expect(await store.replay.move(scope, ids(delivered), "alice")).toMatchObject({ changed: 1 });

    await database.query("UPDATE outbox SET state = N'sent', updated_at = DATEADD(hour, -1, SYSUTCDATETIME())");
    const [range] = await store.retention.plan({ table: "outbox", kind: "AGE", maxAgeMs: 1000 });
    expect(await store.retention.deleteBatch(range as RetentionRange, 10)).toEqual({
      deleted: 1,
      rest: null,
      refused: 0,
    });
    const logged = await database.query("SELECT DISTINCT what FROM log ORDER BY what");
    expect(logged).toEqual([{ what: "inbox" }, { what: "outbox" }]);
  });

  test("other names, other types and other collations serve as well, with an aggregate that no bundled column would hold", async () => {
    const names: TableNames = {
      ...DEFAULT_NAMES,
      inboxTable: "Order",
      inbox: {
        ...DEFAULT_NAMES.inbox,
        id: "Key",
        claimToken: "Token",
        state: "select",
        aggregateId: "Group",
        source: "from",
      },
    };
    const table = `CREATE TABLE [Order] ([Key] uniqueidentifier PRIMARY KEY, [from] nvarchar(100) COLLATE Latin1_General_100_BIN2 NOT NULL,
      idempotency_key nvarchar(300) COLLATE Latin1_General_100_BIN2, [Group] varchar(2000) NULL, event_type varchar(100), payload nvarchar(max), [select] nvarchar(20) DEFAULT 'pending',
      created_at datetimeoffset(7) NOT NULL, processed_at datetime2(7), claimed_at datetime2(7), [Token] uniqueidentifier,
      lease_expires_at datetime2(7), correlation_id varchar(100), consumption nvarchar(10),
      scheduled_at datetimeoffset(6) NOT NULL DEFAULT SYSUTCDATETIME(), attempt int DEFAULT 0, last_error varchar(5000), headers nvarchar(max),
      UNIQUE ([from], idempotency_key))`;
    await using own = await open([table], names);
    const { database, store } = own;
    const wide = "w".repeat(1500);
    const received = [{ aggregateId: wide, payload: '{"a": "é"}' }, { aggregateId: wide }, { aggregateId: "b" }];
    const [first, second, third] = ids(await receive(own, received));
    const request = pullRequest({ limit: 1 });
    expect(ids((await store.pull.claim(request)).rows)).toEqual([first]);
    expect(ids((await store.pull.claim(pullRequest())).rows)).toEqual([third]);
    const held = { source: "orders", token: request.token, ids: null };
    expect((await store.pull.reject(held, { delayMs: 0, reason: "x", maxAttempts: 5 })).retried).toEqual([first]);
    const again = await claim(own);
    const rejection = { delayMs: 0, reason: "x", maxAttempts: 5 };
    expect(await store.pull.reject({ ...again, ids: [first as never] }, rejection)).toEqual({
      retried: [first],
      dead: [],
      released: [second],
    });
    expect(await store.pull.acknowledge(await claim(own))).toEqual([first, second]);

    await database.query("UPDATE [Order] SET created_at = DATEADD(hour, -1, created_at)");
    const [range] = await store.retention.plan({ table: "inbox", kind: "AGE", maxAgeMs: 1000 });
    expect(await store.retention.deleteBatch(range as RetentionRange, 10)).toEqual({
      deleted: 2,
      rest: null,
      refused: 0,
    });
  });
});

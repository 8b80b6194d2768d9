import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import type { ClaimedRow, Outcome } from "../../src/model/rows.ts";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest, failed, recorded } from "../conformance/store/harness.ts";
import { createDatabase, TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock, recordingLog } from "../support/recorders.ts";
import { withStore } from "../support/schemaChecks.ts";

failOnLeaks();

const failure = (row: ClaimedRow): Outcome => recorded(failed(row, 0));

/** A store with its tables, and what it has logged. */
async function withTables(
  work: (
    database: TestDatabase,
    store: Store,
    clock: ManualClock,
    lines: readonly { message: string }[],
  ) => Promise<void>,
): Promise<void> {
  await using database = await createDatabase();
  const clock = new ManualClock();
  const { log, lines } = recordingLog();
  await withStore(postgresStore(database, DEFAULT_NAMES, clock, log), async (store) => {
    await store.schema.migrate();
    await store.schema.checkColumns();
    await work(database, store, clock, lines);
  });
}

/** Inserts a row, claims it and lets its delivery fail. */
async function fail(database: TestDatabase, store: Store): Promise<ClaimedRow> {
  await database.query("INSERT INTO outbox (topic, payload, destination) VALUES ('orders', '{}', 'orders')");
  const { rows } = await store.outbox.claim(claimRequest());
  const row = rows.at(-1) as ClaimedRow;
  expect((await store.outbox.settle(rows.map(failure))).closed).toEqual(new Set(rows.map(({ id }) => id)));
  return row;
}

const entries = async (store: Store) => (await store.history.since(null, 100)).length;

describe("a history that cannot be written", () => {
  test("because its table is missing keeps nothing, and no row from its way", async () => {
    await withTables(async (database, store) => {
      await database.query("DROP TABLE outbox_history");
      await store.schema.checkColumns();
      expect(store.history.isAvailable).toBe(false);
      const row = await fail(database, store);
      await database.query("UPDATE outbox SET state = 'sent', updated_at = now() - interval '1 hour'");
      expect(await store.replay.move(await store.replay.begin(), [row.id], "alice")).toMatchObject({ changed: 1 });
    });
  });

  test("because the user lacks a right to it is not used", async () => {
    await withTables(async (database) => {
      const user = `u_${randomUUID().replaceAll("-", "").slice(0, 12)}`;
      await database.query(`CREATE ROLE ${user} LOGIN PASSWORD 'p'`);
      try {
        await database.query(`GRANT SELECT, INSERT, UPDATE ON outbox, inbox TO ${user}`);
        await database.query(`GRANT SELECT, INSERT ON outbox_history TO ${user}`);
        await withStore(postgresStore({ ...database, user, password: "p" }), async (store) => {
          await store.schema.checkColumns(["outbox", "history"]);
          expect(store.history.isAvailable).toBe(false);
          await fail(database, store);
          await database.query(`GRANT DELETE ON outbox_history TO ${user}`);
          await store.schema.checkColumns(["outbox", "history"]);
          await fail(database, store);
          expect(await entries(store)).toBe(2);
        });
      } finally {
        await database.query(`DROP OWNED BY ${user}; DROP ROLE ${user}`);
      }
    });
  });

  test.each([["is dropped", "DROP TABLE outbox_history"]])(
    "because its table %s while the process runs is left alone for a minute",
    async (_, change) => {
      await withTables(async (database, store, clock, lines) => {
        await fail(database, store);
        await database.query(change);
        const row = await fail(database, store);
        await fail(database, store);
        expect(lines.filter(({ message }) => message.startsWith("the history of rows cannot be written"))).toHaveLength(
          1,
        );
        const [stored] = await database.query("SELECT state, attempt FROM outbox WHERE id = $1", [row.id]);
        expect(stored).toEqual({ state: "pending", attempt: 2 });

        await database.query("UPDATE outbox SET state = 'dead', updated_at = now() - interval '1 hour'");
        const replay = store.replay.move(await store.replay.begin(), [row.id], "alice");
        expect((await replay.catch(() => ({ changed: 0 }))).changed).toBe(0);
        for (const range of await store.retention.plan({ table: "outbox", kind: "AGE", maxAgeMs: 1000 })) {
          expect(await store.retention.deleteBatch(range, 10)).toMatchObject({ deleted: 3 });
        }
        clock.advance(60_000);
        await fail(database, store);
        expect(lines.filter(({ message }) => message.startsWith("the history of rows cannot be written"))).toHaveLength(
          2,
        );
      });
    },
  );

  test("because somebody holds its table lets rows settle soon, from then on without waiting", async () => {
    await withTables(async (database, store, _clock, lines) => {
      const other = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
      await other.connect();
      try {
        await other.query("BEGIN; LOCK TABLE outbox_history IN ACCESS EXCLUSIVE MODE");
        await fail(database, store);
        await fail(database, store);
        expect(lines.map(({ message }) => message)).toEqual([
          expect.stringContaining("the history of rows cannot be written"),
        ]);
        await fail(database, store);
        expect(lines).toHaveLength(1);
        await other.query("COMMIT");
      } finally {
        await other.end();
      }
    });
  }, 40_000);
});

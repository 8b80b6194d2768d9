import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import { createPostgresStore } from "../../src/adapters/stores/postgres/index.ts";
import type { ClaimToken } from "../../src/model/rows.ts";
import { Secret } from "../../src/model/secret.ts";
import type { Store } from "../../src/ports/store.ts";
import { createDatabase, TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { connectionTo, DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock, recordingLog } from "../support/recorders.ts";
import { problemsOf, withStore } from "../support/schemaChecks.ts";

failOnLeaks();

async function migrated(): Promise<TestDatabase> {
  const database = await createDatabase();
  await withStore(postgresStore(database), (store) => store.schema.migrate());
  return database;
}

describe("a change of a destination that waits for the lock of its row", () => {
  /** Runs `change` while somebody else has the row locked, who changes nothing; when that ended is left in the table `ended`. */
  async function whileLocked(database: TestDatabase, change: (store: Store) => Promise<unknown>): Promise<void> {
    const other = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
    await other.connect();
    try {
      await withStore(postgresStore(database), async (store) => {
        await other.query("BEGIN; SELECT FROM outbox_destination WHERE name = 'billing' FOR UPDATE");
        const changing = change(store);
        await eventually(async () => {
          const waiting = await database.query(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%outbox_destination%'",
          );
          expect(waiting).toHaveLength(1);
        });
        await other.query("CREATE TABLE ended AS SELECT clock_timestamp() AS at; COMMIT");
        await changing;
      });
    } finally {
      await other.end();
    }
  }

  const TIMES: readonly (readonly [string, string, (store: Store) => Promise<unknown>])[] = [
    ["a pause", "paused_at", ({ destinations }) => destinations.pause("billing", { by: "a", reason: "r", forMs: 5 })],
    [
      "a take from the rate",
      "rate_next_at",
      ({ destinations }) => destinations.takeFromRate("billing", { tokens: 1, perSecond: 1_000_000, capacity: 0 }),
    ],
    [
      "an opening",
      "opened_at",
      ({ destinations }) =>
        destinations.open("billing", {
          probe: null,
          openMs: 1000,
          maxOpenMs: 1000,
          factor: 1,
          atLeastMs: 0,
          stableAfterMs: 0,
          reason: "r",
        }),
    ],
  ];

  test.each(TIMES)(
    "notes the time after the wait, also when the other changed nothing: %s",
    async (_, column, change) => {
      await using database = await migrated();
      await database.query("INSERT INTO outbox_destination (name) VALUES ('billing')");

      await whileLocked(database, change);

      const [row] = await database.query(`SELECT ${column} >= ended.at AS later FROM outbox_destination, ended`);
      expect(row).toEqual({ later: true });
    },
  );

  test("notes the time after the wait: a probe", async () => {
    await using database = await migrated();
    await database.query(
      `INSERT INTO outbox_destination (name, breaker_state, openings, opened_at, open_until)
       VALUES ('billing', 'open', 1, now() - interval '1 minute', now() - interval '1 second')`,
    );

    await whileLocked(database, async ({ destinations }) => {
      expect(await destinations.takeProbe("billing", randomUUID() as ClaimToken, 1000)).toBe(true);
    });

    const [row] = await database.query("SELECT probe_at >= ended.at AS later FROM outbox_destination, ended");
    expect(row).toEqual({ later: true });
  });
});

describe("the check of the table of the destinations", () => {
  async function check(store: Store, isRequired: boolean) {
    const failure = await store.schema.checkColumns(["destinations"], { destinations: isRequired }).then(
      () => undefined,
      (error: unknown) => error,
    );
    return { isAvailable: store.destinations.isAvailable, failure };
  }

  test.each([
    ["is missing", "DROP TABLE outbox_destination"],
    ["lacks a column", "ALTER TABLE outbox_destination DROP COLUMN paused_by"],
    ["has no key on the name", "ALTER TABLE outbox_destination DROP CONSTRAINT outbox_destination_pkey"],
    ["may not be written", "REVOKE INSERT, UPDATE ON outbox_destination FROM current_user"],
  ])("a table that %s is a warning with the reason, and an error if it is required", async (_, change) => {
    await using database = await migrated();
    await database.query(change);
    const user = `u_${randomUUID().replaceAll("-", "").slice(0, 12)}`;
    await database.query(`CREATE ROLE ${user} LOGIN PASSWORD 'p'`);
    const right = change.startsWith("REVOKE") ? "SELECT" : "SELECT, INSERT, UPDATE";
    if (!change.startsWith("DROP")) await database.query(`GRANT ${right} ON outbox_destination TO ${user}`);
    const { log, lines } = recordingLog();
    const options = { ...connectionTo(database), username: user, password: new Secret("p"), poolSize: 2 };
    const store = createPostgresStore({ ...options, names: DEFAULT_NAMES }, new ManualClock(), log);
    try {
      await withStore(store, async () => {
        expect(await check(store, false)).toEqual({ isAvailable: false, failure: undefined });
        const reason = expect.stringMatching(/^destinations\..*SQLSTATE 42/);
        expect(lines).toMatchObject([{ level: "warn", fields: { reason, remedy: expect.stringContaining("007") } }]);
        const { failure } = await check(store, true);
        expect(problemsOf(failure)).toMatch(/database\.destinationTableName: the table cannot be used .*svc migrate/);
      });
    } finally {
      await database.query(`DROP OWNED BY ${user}; DROP ROLE ${user}`);
    }
  });

  test("a table of another name is used under it", async () => {
    await using database = await migrated();
    await database.query('ALTER TABLE outbox_destination RENAME TO "Targets"');
    const names = { ...DEFAULT_NAMES, destinationTable: "Targets" };

    await withStore(postgresStore(database, names), async (store) => {
      expect(await check(store, true)).toEqual({ isAvailable: true, failure: undefined });
      await store.destinations.report([{ name: "a", succeededAgoMs: 0, failure: undefined, isSlow: true }]);
    });
    expect(await database.query('SELECT name FROM "Targets"')).toEqual([{ name: "a" }]);
  });
});

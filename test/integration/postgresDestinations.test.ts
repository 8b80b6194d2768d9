import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import pg from "pg";
import { createPostgresStore } from "../../src/adapters/stores/postgres/index.ts";
import { ConfigError } from "../../src/model/errors.ts";
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

  test("a missing table is a warning with the statement that makes it, and an error where it is required", async () => {
    await using database = await migrated();
    await database.query("DROP TABLE outbox_destination");
    const { log, lines } = recordingLog();

    await withStore(postgresStore(database, DEFAULT_NAMES, new ManualClock(), log), async (store) => {
      expect(store.destinations.isAvailable).toBe(false);
      expect(await check(store, false)).toEqual({ isAvailable: false, failure: undefined });
      expect(lines.map(({ level }) => level)).toEqual(["warn"]);
      const remedy = String(lines[0]?.fields.remedy);
      const { failure } = await check(store, true);
      expect(failure).toBeInstanceOf(ConfigError);
      expect(problemsOf(failure)).toContain(`database.destinationTableName: the table "outbox_destination" does not`);
      expect(problemsOf(failure)).toContain(remedy);

      await database.query(remedy);
      expect(await check(store, true)).toEqual({ isAvailable: true, failure: undefined });
      expect(await store.destinations.states()).toEqual([]);
    });
    expect(lines).toHaveLength(1);
  });

  test("every missing column comes with the statement that adds it, and with all of them the table can be used", async () => {
    await using database = await migrated();
    await database.query("DROP TABLE outbox_destination; CREATE TABLE outbox_destination (note int)");

    await withStore(postgresStore(database), async (store) => {
      const { failure } = await check(store, false);
      const statements = (problemsOf(failure).match(/^ {6}.*;$/gm) ?? []).map((line) => line.trim());
      expect(statements).toHaveLength(Object.keys(DEFAULT_NAMES.destination).length);
      expect(problemsOf(failure)).not.toContain("map the key");
      for (const statement of statements) await database.query(statement);

      expect(await check(store, false)).toEqual({ isAvailable: true, failure: undefined });
      await store.destinations.pause("billing", { by: "a", reason: "r", forMs: undefined });
      expect(await store.destinations.states()).toMatchObject([{ name: "billing" }]);
    });
  });

  test("a table without a key on the name is refused with the statement that adds it", async () => {
    await using database = await migrated();
    await database.query("ALTER TABLE outbox_destination DROP CONSTRAINT outbox_destination_pkey");

    await withStore(postgresStore(database), async (store) => {
      const { failure } = await check(store, false);
      await database.query(/ALTER TABLE .*;/.exec(problemsOf(failure))?.[0] ?? "");
      expect(await check(store, false)).toEqual({ isAvailable: true, failure: undefined });
    });
  });

  test("a user without the rights is told which, and goes on without the table", async () => {
    await using database = await migrated();
    const user = `u_${randomUUID().replaceAll("-", "").slice(0, 12)}`;
    await database.query(`CREATE ROLE ${user} LOGIN PASSWORD 'p'`);
    try {
      await database.query(`GRANT SELECT ON outbox_destination TO ${user}`);
      const { log, lines } = recordingLog();
      const options = { ...connectionTo(database), username: user, password: new Secret("p"), poolSize: 2 };
      const store = createPostgresStore({ ...options, names: DEFAULT_NAMES }, new ManualClock(), log);
      await withStore(store, async () => {
        expect(await check(store, false)).toEqual({ isAvailable: false, failure: undefined });
        const remedy = 'GRANT INSERT, UPDATE ON "outbox_destination" TO <user>;';
        const message =
          'the database user has no right to INSERT, UPDATE on the table "outbox_destination": destinations cannot be paused, ' +
          "and have no rate limit or circuit breaker, until that is fixed and the process restarted";
        expect(lines).toMatchObject([{ level: "warn", fields: { remedy }, message }]);
        expect(problemsOf((await check(store, true)).failure)).toContain(remedy);

        await database.query(remedy.replace("<user>", user));
        expect(await check(store, true)).toEqual({ isAvailable: true, failure: undefined });
        await store.destinations.pause("billing", { by: "a", reason: "r", forMs: undefined });
        expect(await store.destinations.resume("billing")).toBe(true);
      });
    } finally {
      await database.query(`DROP OWNED BY ${user}; DROP ROLE ${user}`);
    }
  });

  test("what happens to it while the process runs is told with the statement that mends it", async () => {
    await using database = await migrated();
    const user = `u_${randomUUID().replaceAll("-", "").slice(0, 12)}`;
    await database.query(`CREATE ROLE ${user} LOGIN PASSWORD 'p'`);
    try {
      await database.query(`GRANT SELECT, INSERT, UPDATE ON outbox_destination TO ${user}`);
      const options = { ...connectionTo(database), username: user, password: new Secret("p"), poolSize: 2 };
      const store = createPostgresStore({ ...options, names: DEFAULT_NAMES }, new ManualClock(), recordingLog().log);
      await withStore(store, async ({ schema, destinations }) => {
        const mend = async (what: string) => {
          const fault = await schema.destinationFault();
          expect(fault?.what).toContain(what);
          await database.query(String(fault?.remedy).replace("<user>", user));
        };
        expect(await schema.destinationFault()).toBeUndefined();

        await database.query("ALTER TABLE outbox_destination DROP COLUMN paused_by");
        await expect(destinations.states()).rejects.toMatchObject({ code: "schema" });
        await mend('the table "outbox_destination" has no column "paused_by"');

        await database.query(`REVOKE SELECT, UPDATE ON outbox_destination FROM ${user}`);
        await expect(destinations.states()).rejects.toMatchObject({ code: "schema" });
        await mend("the database user has no right to SELECT, UPDATE on the table");

        await database.query("DROP TABLE outbox_destination");
        await expect(destinations.states()).rejects.toMatchObject({ code: "schema" });
        await mend('the table "outbox_destination" does not exist');
        await mend("has no right to SELECT, INSERT, UPDATE");

        expect(await schema.destinationFault()).toBeUndefined();
        expect(await destinations.states()).toEqual([]);
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

import { randomBytes } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import type { Store } from "../../src/ports/store.ts";
import { claimRequest } from "../conformance/store/harness.ts";
import { pullRequest } from "../conformance/store/pullSupport.ts";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, databaseCopies, withStoreOn } from "../support/postgresHarness.ts";

failOnLeaks();
const openMigrated = databaseCopies();

const ROWS = 20;
/** Characters of a payload that is sent. */
const LARGE = 400_000;
const maxBytes = 2.5 * LARGE;

/** The payloads that one claim takes. */
const claims = {
  outbox: async ({ outbox }: Store) =>
    (await outbox.claim(claimRequest({ limit: ROWS, maxBytes }))).rows.map(({ payload }) => payload),
  inbox: async ({ pull }: Store) =>
    (await pull.claim(pullRequest({ limit: ROWS, maxBytes }))).rows.map(({ payload }) => payload),
};
const TABLES = ["outbox", "inbox"] as const;

test.each(TABLES)("a claim reads the texts of the %s that it takes, and few others", async (table) => {
  await using database = await openMigrated();
  const noise = () => JSON.stringify(randomBytes((LARGE / 4) * 3).toString("base64"));
  await insert(database, table, "text", Array.from({ length: ROWS }, noise));
  const before = await blocksRead(database, table);

  const taken = await claimedFrom<readonly (string | null)[]>(database, claims[table]);

  expect(taken).toHaveLength(3);
  const read = await eventually(async () => {
    const blocks = (await blocksRead(database, table)) - before;
    expect(blocks).toBeGreaterThan(0);
    return blocks;
  });
  // Each at most twice, for its size and for its text, with the entries of the index.
  expect(read).toBeLessThan(10 * (LARGE / 8192));
});

describe.each(["text", "json", "jsonb"])("large payloads in a column of the type %s", (type) => {
  const repetition = (): string => JSON.stringify("a".repeat(LARGE));

  test.each(TABLES)("a claim of the %s counts their sent size, not their stored size", async (table) => {
    await using database = await openMigrated();
    await insert(database, table, type, Array.from({ length: ROWS }, repetition));

    const taken = await claimedFrom<readonly (string | null)[]>(database, claims[table]);

    expect(taken.map((payload) => payload?.length)).toEqual([LARGE + 2, LARGE + 2, LARGE + 2]);
  });
});

describe("a payload that is far larger as text than in its jsonb column", () => {
  /** A number of 12 bytes in the table, and of 128 KiB as text. */
  const numbers = (count: number): string => `to_jsonb(array_fill(('1e131071')::numeric, ARRAY[${count}]))`;
  test.each(["payload", "headers"])("stays in the inbox as %s, for a pull client", async (column) => {
    await using database = await openMigrated();
    const large = column === "payload" ? numbers(520) : `jsonb_build_object('h', ${numbers(520)})`;
    await insert(database, "inbox", "jsonb", ["1", "1"]);
    await database.query(`UPDATE inbox SET ${column} = ${large} WHERE idempotency_key = '0'`);

    const { rows } = await claimedFrom(database, (store) => store.pull.claim(pullRequest({ maxBytes: 2 ** 30 })));

    expect(rows).toMatchObject([
      { idempotencyKey: "0", tooLarge: column },
      { idempotencyKey: "1", tooLarge: null, payload: "1" },
    ]);
  });

  test("stays in the outbox as headers, too", async () => {
    await using database = await openMigrated();
    await database.query(
      `INSERT INTO outbox (topic, payload, headers) VALUES ('bad', '1', jsonb_build_object('h', ${numbers(520)})), ('good', '1', '{}')`,
    );

    const { rows } = await claimedFrom(database, (store) => store.outbox.claim(claimRequest({ maxBytes: 2 ** 30 })));

    expect(rows).toMatchObject([
      { topic: "bad", headers: {}, tooLarge: "headers" },
      { topic: "good", tooLarge: null },
    ]);
  });

  const withNumbers = async (database: TestDatabase, count: number): Promise<void> => {
    await database.query("ALTER TABLE outbox ALTER COLUMN payload TYPE jsonb USING payload::jsonb");
    await database.query(`INSERT INTO outbox (topic, payload) VALUES ('bad', ${numbers(count)}), ('good', '1')`);
  };

  test("stays in the table if no process could hold it; the others are claimed", async () => {
    await using database = await openMigrated();
    await withNumbers(database, 520);

    const { rows } = await claimedFrom(database, (store) => store.outbox.claim(claimRequest({ maxBytes: 2 ** 30 })));

    expect(rows).toMatchObject([
      { topic: "bad", payload: null, tooLarge: "payload" },
      { topic: "good", payload: "1", tooLarge: null },
    ]);
  });

  test("is found if the database cannot write it; the others are claimed", async () => {
    await using database = await openMigrated();
    await withNumbers(database, 8300);

    const [failed, passed] = await claimedFrom(database, async (store) => [
      await store.outbox.claim(claimRequest()),
      await store.outbox.claim(claimRequest()),
    ]);

    expect(failed?.refused).toMatchObject([{ reason: expect.stringMatching(/SQLSTATE 54000/) }]);
    expect(passed?.rows).toMatchObject([{ topic: "good" }]);
  }, 180_000);
});

test("a payload of more than 64 MiB stays in its text column", async () => {
  await using database = await openMigrated();
  await database.query(
    "INSERT INTO outbox (topic, payload) VALUES ('bad', repeat('a', 64 * 1024 * 1024 + 1)), ('good', '1')",
  );

  const { rows } = await claimedFrom(database, (store) => store.outbox.claim(claimRequest({ maxBytes: 2 ** 30 })));

  expect(rows).toMatchObject([
    { topic: "bad", payload: null, tooLarge: "payload" },
    { topic: "good", payload: "1", tooLarge: null },
  ]);
});

test("large headers take room of a claim", async () => {
  await using database = await openMigrated();
  await database.query(
    `INSERT INTO outbox (topic, payload, headers) SELECT 'a', '1', jsonb_build_object('x', repeat('a', ${LARGE})) FROM generate_series(1, 20)`,
  );

  expect(await claimedFrom<readonly (string | null)[]>(database, claims.outbox)).toHaveLength(3);
});

test("a message without attempts left takes no room of a pull claim", async () => {
  await using database = await openMigrated();
  await insert(
    database,
    "inbox",
    "jsonb",
    Array.from({ length: 4 }, () => JSON.stringify("a".repeat(LARGE))),
  );
  await database.query("UPDATE inbox SET attempt = 5 WHERE idempotency_key = '0'");

  const { rows, dead } = await claimedFrom(database, (store) =>
    store.pull.claim(pullRequest({ maxBytes: 1.5 * LARGE })),
  );

  expect([rows.length, dead.length]).toEqual([2, 1]);
});

function claimedFrom<T>(database: TestDatabase, claim: (store: Store) => Promise<T>): Promise<T> {
  return withStoreOn(database, DEFAULT_NAMES, async (store) => {
    // Here the store learns the types of the columns.
    await store.schema.checkColumns();
    return await claim(store);
  });
}

async function insert(
  database: TestDatabase,
  table: (typeof TABLES)[number],
  type: string,
  payloads: readonly string[],
): Promise<void> {
  await database.query(`ALTER TABLE ${table} ALTER COLUMN payload TYPE ${type} USING payload::${type}`);
  for (const [n, payload] of payloads.entries()) {
    await database.query(
      table === "outbox"
        ? `INSERT INTO outbox (topic, payload) VALUES ('a', $1::${type})`
        : `INSERT INTO inbox (source, idempotency_key, consumption, payload) VALUES ('orders', '${n}', 'pull', $1::${type})`,
      [payload],
    );
  }
  // What this session has read is counted now, and not during the claim.
  await database.query("SELECT pg_stat_force_next_flush()");
}

/** Blocks of large values read so far, by the sessions that have told: each tells at its end. */
async function blocksRead(database: TestDatabase, table: string): Promise<number> {
  const [row] = await database.query(
    "SELECT (toast_blks_hit + toast_blks_read)::int AS blocks FROM pg_statio_user_tables WHERE relname = $1",
    [table],
  );
  return Number(row?.blocks);
}

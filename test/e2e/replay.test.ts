import { describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { postgresStore } from "../support/postgresHarness.ts";
import { type ConfigTree, merged, ordersTo, useServices } from "../support/service.ts";

const services = useServices();
const { svc } = services.processes;
failOnLeaks();

const NOBODY = { url: "http://127.0.0.1:9" };
const FIRST = "01936f2e-4a5c-7bb0-a1d5-000000000001";
const SECOND = "01936f2e-4a5c-7bb0-a1d5-000000000002";
const THIRD = "01936f2e-4a5c-7bb0-a1d5-000000000003";

/** A database with the tables in it. */
async function migrated(): Promise<TestDatabase> {
  const database = await services.database();
  const store = postgresStore(database);
  await store.schema.migrate().finally(() => store.close());
  return database;
}

function configOf(database: TestDatabase, overrides: ConfigTree = {}): string {
  const { jdbcUrl: url, user: username, password } = database;
  return services.configFile(merged(ordersTo(NOBODY, { database: { url, username, password } }), overrides));
}

async function replay(file: string, ...args: readonly string[]) {
  const child = svc(["replay", "--config", file, ...args], { env: { LOG_LEVEL: "warn" } });
  const { code } = await child.exited;
  return { code, stdout: child.stdout, stderr: child.stderr.join("\n") };
}

async function insertDead(
  database: TestDatabase,
  ...rows: readonly (readonly [id: string, topic: string, at: string])[]
) {
  for (const [id, topic, at] of rows) {
    await database.query(
      `INSERT INTO outbox (id, topic, payload, state, attempt, created_at, last_error)
       VALUES ($1, $2, '{}', 'dead', 5, $3, 'status 500')`,
      [id, topic, at],
    );
  }
}

const pendingIds = async (database: TestDatabase) =>
  (await database.query("SELECT id FROM outbox WHERE state = 'pending' ORDER BY id")).map((row) => row.id as string);

describe("svc replay", () => {
  test("moves what matches, and pollers that sleep are woken: the message is delivered again under its id", async () => {
    const [database, receiver] = await Promise.all([migrated(), services.receiver()]);
    await insertDead(database, [FIRST, "orders.created", "2026-01-05T08:00:00Z"]);
    const config = ordersTo(receiver, { outbox: { pollIntervalMs: 600_000 } });
    const direct = { ...database, jdbcUrl: database.directJdbcUrl };
    const poller = await services.start({ database: direct, config, roles: ["poller"] });
    const [{ listeners } = { listeners: 0 }] = await database.query<{ listeners: number }>(
      "SELECT count(*)::int AS listeners FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'",
    );
    expect(listeners).toBe(1);

    const { code, stdout } = await replay(configOf(database), "--topic", "orders.created");

    expect([code, stdout]).toEqual([0, ["1 row moved to pending"]]);
    const [request] = await receiver.received(1);
    expect(request?.headers["x-message-id"]).toBe(FIRST);
    await eventually(async () => {
      expect(await database.query("SELECT state, attempt, last_error FROM outbox")).toEqual([
        { state: "sent", attempt: 0, last_error: null },
      ]);
    });
    expect((await poller.stop()).code).toBe(0);
  });

  test("takes dead rows alone, and leaves what was delivered", async () => {
    const database = await migrated();
    const at = "2026-01-05T08:00:00Z";
    await insertDead(database, [FIRST, "orders.a", at], [SECOND, "orders.b", at], [THIRD, "orders.c", at]);
    await database.query("UPDATE outbox SET state = 'sent' WHERE id = $1", [SECOND]);
    const file = configOf(database);
    const filters = ["--state", "dead", "--destination", "receiver"];

    const preview = await replay(file, ...filters, "--dry-run");
    expect([preview.code, preview.stdout[0]]).toEqual([0, "2 rows would be moved to pending"]);
    expect(preview.stdout.join()).not.toContain(SECOND);
    expect(await replay(file, ...filters)).toMatchObject({ code: 0, stdout: ["2 rows moved to pending"] });

    expect(await pendingIds(database)).toEqual([FIRST, THIRD]);
    expect(await replay(file, "--state", "pending")).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('"sent" or "dead" is expected'),
    });
  });

  test("logs count and filter", async () => {
    const database = await migrated();
    await insertDead(database, [FIRST, "a", "2026-01-05T08:00:00Z"], [SECOND, "b", "2026-01-05T08:00:00Z"]);
    const child = svc(["--config", configOf(database), "replay", "--topic", "a", "--topic", "none", "--id", FIRST]);

    expect((await child.exited).code).toBe(0);

    const logged = child.stdout
      .filter((line) => line.startsWith("{"))
      .map((line) => JSON.parse(line) as { msg: string });
    expect(logged.filter(({ msg }) => msg === "replay")).toMatchObject([
      { level: "info", moved: 1, filter: { ids: 1, topics: ["a", "none"] } },
    ]);
    expect(await pendingIds(database)).toEqual([FIRST]);
  });

  test("takes rows strictly between two instants, to the microsecond", async () => {
    const database = await migrated();
    await insertDead(
      database,
      [FIRST, "a", "2026-01-05T08:00:00.000001Z"],
      [SECOND, "a", "2026-01-05T08:00:00.000002Z"],
      [THIRD, "a", "2026-01-05T08:00:00.000003Z"],
    );
    const bounds = [
      "--created-after",
      "2026-01-05T09:00:00.000001+01:00",
      "--created-before",
      "2026-01-05T08:00:00.000003Z",
    ];

    expect(await replay(configOf(database), ...bounds)).toMatchObject({ code: 0, stdout: ["1 row moved to pending"] });

    expect(await pendingIds(database)).toEqual([SECOND]);
  });

  test("takes the rows that the routes send to a destination; the first route that matches decides", async () => {
    const database = await migrated();
    await insertDead(
      database,
      [FIRST, "orders.created", "2026-01-05T08:00:00Z"],
      [SECOND, "orders.special", "2026-01-05T08:00:00Z"],
      [THIRD, "unrouted", "2026-01-05T08:00:00Z"],
    );
    const file = configOf(database, {
      destinations: { special: { baseUrl: NOBODY.url } },
      routes: [
        { topicPattern: "orders.special", destination: "special" },
        { topicPattern: "orders.**", destination: "receiver" },
      ],
    });

    expect(await replay(file, "--destination", "receiver")).toMatchObject({ code: 0 });

    expect(await pendingIds(database)).toEqual([FIRST]);
  });

  test("--dry-run counts and shows the first rows, fit for a terminal, and changes nothing", async () => {
    const database = await migrated();
    await insertDead(database, [FIRST, "a", "2026-01-05T08:00:00.5Z"], [SECOND, "topic two", "2026-01-05T08:00:00Z"]);
    await database.query(
      "UPDATE outbox SET key = E'k\\x1b[31m\\u202e', last_error = E'status 500\\n' || repeat('x', 300) WHERE id = $1",
      [FIRST],
    );
    await database.query("UPDATE outbox SET state = 'sent', attempt = 0, last_error = NULL WHERE id = $1", [SECOND]);
    await database.query(
      "INSERT INTO outbox (topic, payload, state) SELECT 'a', '{}', 'dead' FROM generate_series(1, 2000)",
    );
    const rows = () => database.query("SELECT * FROM outbox ORDER BY sequence");
    const before = await rows();
    const file = configOf(database);

    const { code, stdout } = await replay(file, "--topic", "a", "--topic", "topic two", "--dry-run");

    expect(code).toBe(0);
    expect(stdout.slice(0, 4)).toEqual([
      "2002 rows would be moved to pending; the first 10 of them:",
      `id                                    topic      key      state  attempt  created                   last error`,
      `${FIRST}  a          k [31m   dead   5        2026-01-05T08:00:00.500Z  status 500 ${"x".repeat(68)}…`,
      `${SECOND}  topic two           sent   0        2026-01-05T08:00:00.000Z`,
    ]);
    expect(stdout).toHaveLength(12);
    expect(await rows()).toEqual(before);
    expect((await replay(file, "--topic", "none", "--dry-run")).stdout).toEqual(["0 rows would be moved to pending"]);
  });

  test("ends with code 2 and says what is wrong with the call", async () => {
    const database = await migrated();
    const file = configOf(database);
    const wrong = async (...args: readonly string[]) => {
      const { code, stderr } = await replay(file, ...args);
      expect(code).toBe(2);
      return stderr;
    };

    expect(await wrong()).toContain("A replay needs at least one filter.");
    expect(await wrong("--dry-run")).toContain("A replay needs at least one filter.");
    expect(await wrong("--id", "17")).toMatch(/--id <uuid>' argument '17' is invalid. A UUID such as/);
    expect(await wrong("--created-after", "2026-01-05")).toMatch(/--created-after.*An ISO-8601 instant with Z/);
    expect(await wrong("--destination", "reciever")).toMatch(
      /there is no destination "reciever": the destinations are receiver; did you mean "receiver"\?/,
    );
    expect(await wrong("everything")).toContain("too many arguments");
  });

  test("ends with code 2 where there are no tables, and with code 1 where no database answers", async () => {
    const database = await services.database();
    const noTables = await replay(configOf(database), "--topic", "a");
    expect(noTables).toMatchObject({ code: 2, stderr: expect.stringContaining("svc migrate") });

    const gone = { url: "jdbc:postgresql://127.0.0.1:1/none", startupTimeoutMs: 300 };
    const noDatabase = await replay(configOf(database, { database: gone }), "--topic", "a");
    expect(noDatabase).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("no database answered within 300 ms"),
    });
  });

  test.each(["SIGINT", "SIGTERM"] as const)(
    "%s ends it between two batches, and it says what was moved",
    async (signal) => {
      const database = await migrated();
      await database.query(
        "INSERT INTO outbox (topic, payload, state) SELECT 'a', '{}', 'dead' FROM generate_series(1, 2500)",
      );
      const file = configOf(database);
      const child = svc(["replay", "--config", file, "--topic", "a"]);
      // Nobody delivers: it waits for a while before the second batch.
      await eventually(async () => expect(await pendingIds(database)).toHaveLength(1000), { timeoutMs: 15_000 });

      child.kill(signal);

      expect((await child.exited).code).toBe(1);
      expect(child.stderr.join("\n")).toContain("the replay ended early, after 1000 rows were moved");
      const [counts] = await database.query(
        `SELECT count(*) FILTER (WHERE state = 'pending' AND sequence <= 1000)::int AS moved,
         count(*) FILTER (WHERE state = 'dead')::int AS left FROM outbox`,
      );
      expect(counts).toEqual({ moved: 1000, left: 1500 });
    },
  );
});

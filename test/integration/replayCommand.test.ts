import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { addReplayCommand } from "../../src/cli/replay.ts";
import { deliveryId } from "../../src/model/deliveries.ts";
import { ConfigError } from "../../src/model/errors.ts";
import { runCommand } from "../support/commands.ts";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { insertExpanded } from "../support/lists.ts";
import { migratedDatabase } from "../support/postgresHarness.ts";
import { type ConfigTree, databaseConfig, merged, ordersTo, useServices } from "../support/service.ts";

const services = useServices("block");
failOnLeaks("block");

const NOBODY = { url: "http://127.0.0.1:9" };
const FIRST = "01936f2e-4a5c-7bb0-a1d5-000000000001";
const SECOND = "01936f2e-4a5c-7bb0-a1d5-000000000002";

let database: TestDatabase;
let file: string;
beforeAll(async () => {
  database = await migratedDatabase();
  services.defer(() => database.drop());
  file = configOf();
});
beforeEach(() => database.query("TRUNCATE outbox, outbox_history RESTART IDENTITY"));

function configOf(overrides: ConfigTree = {}): string {
  return services.configFile(merged(ordersTo(NOBODY, { database: databaseConfig(database) }), overrides));
}

/** Runs `svc replay`. @returns its lines on standard output. @throws what ends it */
async function replay(configuration: string, ...args: readonly string[]): Promise<readonly string[]> {
  const { stdout, error } = await runCommand(addReplayCommand, ["replay", "--config", configuration, ...args]);
  if (error !== undefined) throw error;
  return stdout.trimEnd().split("\n");
}

async function insertDead(...rows: readonly (readonly [id: string, topic: string, at: string])[]) {
  for (const [id, topic, at] of rows) {
    await database.query(
      `INSERT INTO outbox (id, topic, payload, state, attempt, created_at, last_error)
       VALUES ($1, $2, '{}', 'dead', 5, $3, 'status 500')`,
      [id, topic, at],
    );
  }
}

const insertMany = (count: number) =>
  database.query(
    "INSERT INTO outbox (topic, payload, state) SELECT 'a', '{}', 'dead' FROM generate_series(1, $1::int)",
    [count],
  );

const deadCount = async () =>
  Number((await database.query("SELECT count(*)::int AS rows FROM outbox WHERE state = 'dead'"))[0]?.rows);

describe("svc replay", () => {
  test("--dry-run counts and shows the first rows, fit for a terminal, and changes nothing", async () => {
    await insertDead([FIRST, "a", "2026-01-05T08:00:00.5Z"], [SECOND, "topic two", "2026-01-05T08:00:00Z"]);
    await database.query(
      "UPDATE outbox SET key = E'k\\x1b[31m\\u202e', last_error = E'status 500\\n' || repeat('x', 300) WHERE id = $1",
      [FIRST],
    );
    await database.query("UPDATE outbox SET state = 'sent', attempt = 0, last_error = NULL WHERE id = $1", [SECOND]);
    await insertMany(2000);
    const rows = () => database.query("SELECT * FROM outbox ORDER BY sequence");
    const before = await rows();

    const stdout = await replay(file, "--topic", "a", "--topic", "topic two", "--dry-run");

    expect(stdout.slice(0, 4)).toEqual([
      "2002 rows would be moved to pending; the first 10 of them:",
      `id                                    topic      key      state  attempt  created                   last error`,
      `${FIRST}  a          k [31m   dead   5        2026-01-05T08:00:00.500Z  status 500 ${"x".repeat(68)}…`,
      `${SECOND}  topic two           sent   0        2026-01-05T08:00:00.000Z`,
    ]);
    expect(stdout.slice(12, 14)).toEqual(["", expect.stringMatching(/^rows {2}destination {2}topic/)]);
    expect(stdout).toHaveLength(17);
    expect(await rows()).toEqual(before);
    expect(await replay(file, "--topic", "none", "--dry-run")).toEqual(["0 rows would be moved to pending"]);
  });

  test("names the option with a destination that is not configured", async () => {
    await expect(replay(file, "--destination", "reciever")).rejects.toThrow(
      /--destination.*there is no destination "reciever": the destinations are receiver; did you mean "receiver"\?/,
    );
    const unknown = replay(file, "--id", FIRST, "--to", "nobody");
    await expect(unknown).rejects.toThrow("--to");
    await expect(unknown).rejects.toBeInstanceOf(ConfigError);
    await expect(replay(file, "--id", FIRST, "--add", "nobody")).rejects.toThrow("--add");
  });

  test("--add gives a message the delivery to a new destination of its list, and a dry run counts it", async () => {
    const destinations = { audit: { baseUrl: NOBODY.url, path: "/audit" } };
    const list = configOf({ destinations, routes: [{ topicPattern: "a", destinations: ["receiver", "audit"] }] });
    const id = await insertExpanded(database, { topic: "a", deliveries: { receiver: "sent" } });
    const [count, , sample] = await replay(list, "--topic", "a", "--add", "audit", "--dry-run");
    expect([count, sample]).toEqual(["1 row would be added", expect.stringContaining(id)]);
    expect(await replay(list, "--topic", "a", "--add", "audit")).toEqual(["1 row added"]);
    expect(await replay(list, "--topic", "a", "--add", "audit")).toEqual(["0 rows added"]);
    expect(await database.query("SELECT id, state FROM outbox WHERE destination = 'audit'")).toEqual([
      { id: deliveryId(id, "audit"), state: "pending" },
    ]);
  });

  test("--add changes nothing and names the topic if its route has no list", async () => {
    const id = await insertExpanded(database, { topic: "a", deliveries: { billing: "sent" } });
    for (const options of [[], ["--dry-run"]])
      await expect(replay(file, "--id", id, "--add", "receiver", ...options)).rejects.toThrow(
        'the topic "a" has no route with a list of destinations that names "receiver"',
      );
    expect(await database.query("SELECT FROM outbox")).toHaveLength(2);
  });

  test("asks for a migration if there are no tables, and says for how long no database answered", async () => {
    const empty = await services.database();
    const noTables = replay(configOf({ database: databaseConfig(empty) }), "--topic", "a");
    await expect(noTables).rejects.toThrow("svc migrate");
    // Another configuration mends it, so the exit code is 2.
    await expect(noTables).rejects.toBeInstanceOf(ConfigError);

    const gone = { url: "jdbc:postgresql://127.0.0.1:1/none", startupTimeoutMs: 300 };
    const noDatabase = replay(configOf({ database: gone }), "--topic", "a");
    await expect(noDatabase).rejects.toThrow("no database answered within 300 ms");
    await expect(noDatabase).rejects.not.toBeInstanceOf(ConfigError);
  });
});

const DISCONNECTING = `CREATE FUNCTION disconnect() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
  CREATE TRIGGER disconnect BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION disconnect()`;

test("svc replay prints the start of the first one each time it fails, by which each row is moved once", async () => {
  await insertMany(40);
  const [{ earliest = "" } = {}] = await database.query<{ earliest: string }>("SELECT now()::text AS earliest");
  const run = (...args: readonly string[]) =>
    replay(file, "--topic", "a", "--per-second", "10", ...args).catch((error: Error) => error);
  const timeIn = (failure: unknown) =>
    /ended early, after \d+ rows? .*--finished-before (\S+) for the rest/.exec(String(failure))?.[1] ?? String(failure);
  /** What it has moved is sent again before the next one. */
  const interrupted = async (...args: readonly string[]) => {
    const before = await deadCount();
    const failed = run(...args);
    await eventually(async () => expect(await deadCount()).toBeLessThan(before));
    await database.query("ALTER TABLE outbox RENAME TO gone");
    const failure = await failed;
    await database.query("ALTER TABLE gone RENAME TO outbox");
    await database.query("UPDATE outbox SET state = 'sent', updated_at = now() WHERE state = 'pending'");
    return timeIn(failure);
  };
  const time = await interrupted();
  const begun = await database.query("SELECT $1::timestamptz BETWEEN $2 AND now() AS ok", [time, earliest]);
  expect(begun).toEqual([{ ok: true }]);
  const again = ["--finished-before", time];

  expect(await interrupted(...again)).toBe(time);
  await database.query(DISCONNECTING);
  const unanswered = await run(...again);
  await database.query("DROP FUNCTION disconnect CASCADE");
  expect(String(unanswered)).toContain("after 0 rows were moved; those of the last batch may be moved too: repeat it");
  expect(timeIn(unanswered)).toBe(time);
  const left = await deadCount();
  expect(left).toBeGreaterThan(0);
  expect(await replay(file, "--topic", "a", ...again)).toEqual([`${left} rows moved to pending`]);

  const rows = await database.query(
    "SELECT outbox_id FROM outbox_history WHERE event = 'replayed' GROUP BY outbox_id HAVING count(*) = 1",
  );
  expect(rows).toHaveLength(40);
});

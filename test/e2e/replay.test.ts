import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { migratedDatabase } from "../support/postgresHarness.ts";
import { databaseConfig, merged, ordersTo, useServices } from "../support/service.ts";

const services = useServices("block");
const { svc } = services.processes;
failOnLeaks("block");

const FIRST = "01936f2e-4a5c-7bb0-a1d5-000000000001";
const SECOND = "01936f2e-4a5c-7bb0-a1d5-000000000002";

let database: TestDatabase;
let file: string;
beforeAll(async () => {
  database = await migratedDatabase();
  services.defer(() => database.drop());
  const config = ordersTo({ url: "http://127.0.0.1:9" });
  file = services.configFile(merged(config, { database: databaseConfig(database) }));
});
beforeEach(() => database.query("TRUNCATE outbox RESTART IDENTITY"));

const pendingIds = async () =>
  (await database.query("SELECT id FROM outbox WHERE state = 'pending'")).map((row) => row.id as string);

// Which rows it takes, and what it says: test/integration/replayCommand.test.ts.
describe("svc replay", () => {
  test("moves what matches, notes it, and wakes pollers that sleep: the message is delivered again under its id", async () => {
    const receiver = await services.receiver();
    for (const id of [FIRST, SECOND]) {
      await database.query(
        `INSERT INTO outbox (id, topic, payload, state, attempt, last_error)
         VALUES ($1, 'orders.created', '{}', 'dead', 5, 'status 500')`,
        [id],
      );
    }
    const config = ordersTo(receiver, { outbox: { pollIntervalMs: 600_000 } });
    const direct = { ...database, jdbcUrl: database.directJdbcUrl };
    const poller = await services.start({ database: direct, config, roles: ["poller"] });
    const [{ listeners } = { listeners: 0 }] = await database.query<{ listeners: number }>(
      "SELECT count(*)::int AS listeners FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'",
    );
    expect(listeners).toBe(1);

    const child = svc(["--config", file, "replay", "--topic", "orders.created", "--topic", "none", "--id", FIRST]);

    expect((await child.exited).code).toBe(0);
    expect(child.stdout.at(-1)).toBe("1 row moved to pending");
    expect(await database.query("SELECT action, detail FROM outbox_audit")).toEqual([
      { action: "replay", detail: '1 rows of {"ids":1,"topics":["orders.created","none"]}' },
    ]);
    const [request] = await receiver.received(1);
    expect(request?.headers["x-message-id"]).toBe(FIRST);
    await eventually(async () => {
      expect(await database.query("SELECT state, attempt, last_error FROM outbox ORDER BY sequence")).toEqual([
        { state: "sent", attempt: 0, last_error: null },
        { state: "dead", attempt: 5, last_error: "status 500" },
      ]);
    });
    expect((await poller.stop()).code).toBe(0);
  });

  // Ctrl-C, with what happens afterwards: replays.test.ts.
  test("SIGTERM ends it between two batches, and it says what was moved", async () => {
    await database.query(
      "INSERT INTO outbox (topic, payload, state) SELECT 'a', '{}', 'dead' FROM generate_series(1, 2500)",
    );
    const child = svc(["replay", "--config", file, "--topic", "a"], { env: { LOG_LEVEL: "warn" } });
    // Nobody delivers: it waits for a while before the second batch.
    await eventually(async () => expect(await pendingIds()).toHaveLength(1000), { timeoutMs: 15_000 });

    child.kill("SIGTERM");

    expect((await child.exited).code).toBe(1);
    expect(child.stderr.join("\n")).toContain("ended early, after 1000 rows were moved");
    const [counts] = await database.query(
      `SELECT count(*) FILTER (WHERE state = 'pending' AND sequence <= 1000)::int AS moved,
       count(*) FILTER (WHERE state = 'dead')::int AS left FROM outbox`,
    );
    expect(counts).toEqual({ moved: 1000, left: 1500 });
  });
});

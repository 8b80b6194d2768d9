import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { createDatabase, pooledJdbcUrl } from "../support/databases.ts";
import { describeWithPgbouncer } from "../support/describeWithPgbouncer.ts";
import { startDoomed } from "../support/doomed.ts";
import { eventually } from "../support/eventually.ts";
import { History } from "../support/history.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import {
  type ConfigTree,
  type DatabaseAddress,
  databaseConfig,
  merged,
  ordersTo,
  type Service,
  type Services,
  startOver,
  useServices,
} from "../support/service.ts";
import { describeWithSqlServer } from "../support/sqlServer.ts";
import { createSqlServerDatabase } from "../support/sqlServerDatabases.ts";
import { allDelivered, sendTraffic } from "../support/traffic.ts";

/** A database of a block's own, and statements that every supported database understands. */
interface AnyDatabase extends DatabaseAddress {
  query(text: string): Promise<readonly object[]>;
}

const NOBODY = { url: "http://127.0.0.1:9" };
const CLEAN = { code: 0, signal: null };
const ADMIN = { authorization: "Bearer admin-sesame-1" };
const PULL = { authorization: "Bearer pull-sesame-1" };

/** What the whole service does, role by role, whatever its database: first the commands on tables of their own, then one service. */
function exerciseService(open: (services: Services) => Promise<AnyDatabase>): void {
  const services = useServices("block");
  failOnLeaks("block");
  let database: AnyDatabase;
  beforeAll(async () => {
    database = await open(services);
    expect((await command(["migrate"])).end).toEqual(CLEAN);
  });

  /** Runs a command of the binary to its end. */
  async function command(args: readonly string[], config: ConfigTree = ordersTo(NOBODY)) {
    const file = services.configFile(merged(config, { database: databaseConfig(database) }));
    const child = services.processes.svc([...args, "--config", file]);
    const end = await child.exited;
    return { end, stderr: child.stderr.join("\n") };
  }

  test("a column that is missing is named with the statement that adds it", async () => {
    await database.query("ALTER TABLE outbox DROP COLUMN last_error");

    const { end, stderr } = await command(["poller"]);

    expect(end).toEqual({ code: 2, signal: null });
    const [statement = ""] = /ALTER TABLE .*outbox.* ADD .*last_error.*?;/.exec(stderr) ?? [];
    await database.query(statement);
    expect(await database.query("SELECT last_error FROM outbox")).toEqual([]);
  });

  test("retention deletes what is finished and old, and nothing else", async () => {
    for (const state of ["pending", "sent", "dead"]) {
      for (const day of ["2020-01-01", "2090-01-01"]) {
        await database.query(
          `INSERT INTO outbox (topic, payload, state, updated_at) VALUES ('${state}', '{}', '${state}', '${day}T00:00:00+00:00')`,
        );
      }
    }
    const retention = {
      enabled: true,
      outbox: { policy: "AGE", maxAge: "1h" },
      inbox: { policy: "AGE", maxAge: "1h" },
    };

    expect((await command(["retention", "--once"], ordersTo(NOBODY, { retention }))).end).toEqual(CLEAN);

    expect(await database.query("SELECT state FROM outbox ORDER BY state, updated_at")).toEqual(
      ["dead", "pending", "pending", "sent"].map((state) => ({ state })),
    );
    await database.query("DELETE FROM outbox");
  });

  describe("of one service", () => {
    let receiver: Receiver;
    let config: ConfigTree;
    let service: Service;
    beforeAll(async () => {
      receiver = await services.receiver();
      config = ordersTo(receiver, {
        sources: { pulled: { path: "/pulled", idempotencyKeyPath: "$.id", consumption: "pull" } },
        destinations: { receiver: { path: "/survivor" } },
        inbox: { pull: { enabled: true, auth: { token: "pull-sesame-1" } } },
        // The lease of the killed replica is over soon.
        outbox: { maxAttempts: 2, retryBaseDelayMs: 20, claimTimeoutMs: 5000 },
        admin: { enabled: true, auth: { token: "admin-sesame-1" } },
      });
      // The tables are there: it has nothing to migrate.
      service = await services.start({ database, config });
    });
    beforeEach(() => startOver(database, receiver));

    test("a message goes from HTTP to HTTP, byte for byte, once, and a repetition is recognized", async () => {
      const body = ' {"id":"o-1","key":"k","type":"created","n":12345678901234567890,"text":"é \\u0000 😀"} ';

      expect((await service.post(body)).status).toBe(202);
      expect((await service.post(body)).json()).toMatchObject({ status: "duplicate" });

      const [request] = await receiver.received(1);
      expect(request?.body.toString("utf8")).toBe(body);
      expect(request?.headers).toMatchObject({ "x-source": "orders", "x-idempotency-key": "o-1" });
      await eventually(async () =>
        expect(await database.query("SELECT state FROM outbox")).toEqual([{ state: "sent" }]),
      );
      expect(await database.query("SELECT state, idempotency_key FROM inbox")).toEqual([
        { state: "processed", idempotency_key: "o-1" },
      ]);
    });

    test("what an application inserts is delivered", async () => {
      await database.query(`INSERT INTO outbox (topic, payload) VALUES ('orders.created', '{"id":"a-1"}')`);

      const [request] = await receiver.received(1);
      expect(request?.body.toString("utf8")).toBe('{"id":"a-1"}');
    });

    test("a message that is refused dies after its attempts, and a replay delivers it", async () => {
      receiver.answer = (_, response) => response.writeHead(500).end();
      await service.post({ id: "o-1", key: "k", type: "created" });
      await eventually(async () =>
        expect(await database.query("SELECT state, attempt FROM outbox")).toEqual([{ state: "dead", attempt: 2 }]),
      );
      receiver.answer = (_, response) => response.writeHead(200).end();

      const answer = await service.post({ topics: ["orders.created"] }, { path: "/admin/replay", headers: ADMIN });

      expect([answer.status, answer.json()]).toEqual([200, { moved: 1 }]);
      await eventually(async () =>
        expect(await database.query("SELECT state, attempt, last_error FROM outbox")).toEqual([
          { state: "sent", attempt: 0, last_error: null },
        ]),
      );
    });

    test("pull clients claim, acknowledge and reject", async () => {
      const ask = (operation: string, body: object = {}) =>
        service.post(body, { path: `/pull/pulled/${operation}`, headers: PULL });
      for (const id of ["o-1", "o-2"]) await service.post({ id }, { path: "/inbox/pulled" });

      const claim = (await ask("claim")).json() as { claimToken: string; messages: { id: string }[] };
      const [first, second] = claim.messages.map(({ id }) => id);
      const { claimToken } = claim;
      expect((await ask("ack", { claimToken, ids: [first] })).status).toBe(200);
      expect((await ask("nack", { claimToken, ids: [second], error: "not now" })).status).toBe(200);

      expect(await database.query("SELECT state, attempt, last_error FROM inbox ORDER BY idempotency_key")).toEqual([
        { state: "processed", attempt: 1, last_error: null },
        { state: "pending", attempt: 1, last_error: "not now" },
      ]);
    });

    test("a replica killed in mid-traffic loses nothing and breaks no order", async () => {
      const history = new History();
      const doomed = await startDoomed(services, receiver, history, { database, config });
      const killed = doomed.killBehind(60);
      const to = [doomed.service, service];
      // However few of the first rows the replica claims that is to be killed.
      const sending = sendTraffic({ history, to, keys: 10, messagesPerKey: 20, until: killed });
      await killed;
      const claimed = await database.query("SELECT headers FROM outbox WHERE state = 'processing'");
      history.mayRepeat(claimed.map(idempotencyKeyOf));
      await sending;
      await allDelivered(history, 60_000);

      expect(history.violations()).toEqual([]);
      expect(history.repeated.length).toBeGreaterThan(0);
    }, 150_000);

    test("ends in order", async () => {
      expect((await service.stop()).code).toBe(0);
    });
  });
}

function idempotencyKeyOf(row: object): string {
  const { headers } = row as { headers: unknown };
  const parsed = (typeof headers === "string" ? JSON.parse(headers) : headers) as Record<string, string>;
  return parsed["x-idempotency-key"] ?? "";
}

// On PostgreSQL itself the other files of this folder have each of these, and test/faults/kill.test.ts the replica that is killed.
describeWithPgbouncer("the service on PostgreSQL behind PgBouncer", () => {
  exerciseService(async (services) => {
    const database = await createDatabase();
    services.defer(() => database.drop());
    return { ...database, jdbcUrl: await pooledJdbcUrl(database) };
  });
});

describeWithSqlServer("the service on SQL Server", () => {
  exerciseService(async (services) => {
    const database = await createSqlServerDatabase();
    services.defer(() => database.drop());
    // What a process leaves behind fails the test that left it.
    services.defer(() => database.assertNoConnections());
    const { jdbcUrl, query, server } = database;
    return { jdbcUrl, user: server.user, password: server.password, query };
  });
});

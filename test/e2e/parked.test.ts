import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { type ConfigTree, databaseConfig, merged, ordersTo, useServices } from "../support/service.ts";

const services = useServices("block");
const { svc } = services.processes;
failOnLeaks("block");

/** A service whose receiver refuses the key `ill` for as long as `refuses.ill` is true. */
async function parking() {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const refuses = { ill: true };
  receiver.answer = ({ body }, response) => {
    const isRefused = refuses.ill && JSON.parse(body.toString()).key === "ill";
    response.writeHead(isRefused ? 503 : 200).end(isRefused ? "not today" : "");
  };
  const config = ordersTo(receiver, {
    // The leases of a killed process are over soon.
    outbox: { retryBaseDelayMs: 20, maxAttempts: 2, claimTimeoutMs: 5000, pendingGaugeIntervalMs: 1000 },
    destinations: { receiver: { timeoutMs: 4000 } },
    routes: [{ topicPattern: "orders.**", destination: "receiver", onExhausted: "park" }],
    admin: { enabled: true, insecure: true },
  });
  return { database, receiver, refuses, config, service: await services.start({ database, config }) };
}

type Parking = Awaited<ReturnType<typeof parking>>;

let world: Parking;
beforeAll(async () => {
  world = await parking();
});
beforeEach(async () => {
  await world.database.query("DELETE FROM outbox");
  await world.database.query("DELETE FROM inbox");
  world.receiver.requests.splice(0);
  world.refuses.ill = true;
});

/** What has arrived and was taken, as `key/id`, in order. */
const taken = (receiver: Receiver, from = 0) =>
  receiver.requests.slice(from).map(({ body }) => {
    const { key, id } = JSON.parse(body.toString()) as { key: string; id: string };
    return `${key}/${id}`;
  });

/** Key by key: a row that is relayed with its receipt may come before one of another key that was received earlier. */
const states = async (database: TestDatabase) =>
  (await database.query("SELECT payload, state, attempt FROM outbox ORDER BY key, sequence")).map(
    ({ payload, state, attempt }) => [JSON.parse(payload as string).id, state, attempt],
  );

/** Three messages of a key that is refused, with others between them. @returns when the first one is parked and the others have arrived */
async function parkFirst({ service, database, receiver }: Parking): Promise<void> {
  const messages = ["ill/1", "well/1", "ill/2", "well/2", "ill/3"];
  for (const message of messages) {
    const [key, id] = message.split("/");
    expect((await service.post({ id: `${key}-${id}`, key, type: "created" })).status).toBe(202);
  }
  await eventually(async () =>
    expect(await states(database)).toEqual([
      ["ill-1", "pending", 2],
      ["ill-2", "pending", 0],
      ["ill-3", "pending", 0],
      ["well-1", "sent", 0],
      ["well-2", "sent", 0],
    ]),
  );
  expect(taken(receiver).filter((message) => message.startsWith("ill"))).toEqual(["ill/ill-1", "ill/ill-1"]);
}

async function parked(
  { database, config }: { database: TestDatabase; config: ConfigTree },
  ...args: readonly string[]
) {
  const file = services.configFile(merged(config, { database: databaseConfig(database) }));
  const child = svc(["parked", ...args, "--config", file], { env: { LOG_LEVEL: "warn" } });
  const { code } = await child.exited;
  return { code, stdout: child.stdout, stderr: child.stderr.join("\n") };
}

// What else the command says: test/unit/cli/usage.test.ts and test/integration/operatorCommands.test.ts.
describe("a row of a route with onExhausted: park", () => {
  test("waits with its key, is shown without its payload, and is delivered in order once it is retried", async () => {
    await parkFirst(world);
    const { service, receiver, refuses, database } = world;
    const line = JSON.parse((await service.process.waitForLine(/.*"msg":"parked: .*/))[0]);
    expect(line).toMatchObject({ level: "error", key: "ill", destination: "receiver", outcome: "park" });
    await eventually(async () => expect(await service.metric("svc_parked_rows")).toBe(1));
    expect(await service.metric('svc_outbox_parked_total{destination="receiver"}')).toBe(1);
    expect(await service.metric('svc_outbox_messages_total{status="failed"}')).toBe(2);
    expect(await service.metric('svc_outbox_messages_total{status="dead"}')).toBe(0);

    const { code, stdout } = await parked(world, "list", "--topic", "orders.*", "--json");
    expect([code, stdout.length]).toEqual([0, 1]);
    const [row] = await database.query("SELECT sequence::text FROM outbox WHERE attempt = 2");
    expect(JSON.parse(stdout[0] ?? "")).toEqual({
      id: expect.any(String),
      sequence: row?.sequence,
      topic: "orders.created",
      key: "ill",
      attempts: 2,
      parkedAt: expect.any(String),
      lastError: expect.stringMatching(/503.*not today/),
    });

    const before = receiver.requests.length;
    refuses.ill = false;
    expect((await parked(world, "retry", "--key", "ill")).stdout).toEqual(["1 row is due again"]);
    await eventually(() => expect(taken(receiver, before)).toEqual(["ill/ill-1", "ill/ill-2", "ill/ill-3"]));
    await eventually(async () => expect(await service.metric("svc_parked_rows")).toBe(0));
  });

  test("is dead once it is discarded, with the reason, and the next of its key flows", async () => {
    await parkFirst(world);
    const { service, receiver, refuses, database } = world;
    const before = receiver.requests.length;
    refuses.ill = false;

    const discard = { topic: "orders.**", reason: "order was cancelled", by: "alice" };
    const answer = await service.post(discard, { path: "/admin/parked/discard" });

    expect([answer.status, answer.json()]).toEqual([200, { changed: 1 }]);
    await eventually(() => expect(taken(receiver, before)).toEqual(["ill/ill-2", "ill/ill-3"]));
    const dead = await database.query("SELECT attempt, last_error FROM outbox WHERE state = 'dead'");
    expect(dead).toEqual([
      {
        attempt: 2,
        last_error: expect.stringMatching(/^discarded by alice \(admin route\): order was cancelled: .*503.*not today/),
      },
    ]);
  });

  test("stays parked when the service is killed and another one takes over, and parks again while it is refused", async () => {
    await parkFirst(world);
    const { service, receiver, refuses, database, config } = world;
    await service.kill();
    const before = receiver.requests.length;
    const next = await services.start({ database, config });
    expect((await next.post({ id: "well-3", key: "well", type: "created" })).status).toBe(202);
    await eventually(() => expect(taken(receiver, before)).toEqual(["well/well-3"]));

    const retryAll = async () => (await next.post({ all: true }, { path: "/admin/parked/retry" })).json();
    expect(await retryAll()).toEqual({ changed: 1 });
    const isParked = "SELECT attempt FROM outbox WHERE key = 'ill' AND attempt > 0 AND scheduled_at > '9000-01-01'";
    await eventually(async () => expect(await database.query(isParked)).toEqual([{ attempt: 2 }]));
    expect(taken(receiver, before)).toEqual(["well/well-3", "ill/ill-1", "ill/ill-1"]);

    refuses.ill = false;
    expect(await retryAll()).toEqual({ changed: 1 });
    await next.kill();
    const last = await services.start({ database, config });
    await eventually(
      async () => expect((await states(database)).map(([, state]) => state)).toEqual(Array(6).fill("sent")),
      {
        timeoutMs: 60_000,
        intervalMs: 200,
      },
    );
    const ids = taken(receiver, before + 3);
    // A delivery that the kill cut off comes once more.
    expect([...new Set(ids)]).toEqual(["ill/ill-1", "ill/ill-2", "ill/ill-3"]);
    expect((await last.stop()).code).toBe(0);
  }, 120_000);
});

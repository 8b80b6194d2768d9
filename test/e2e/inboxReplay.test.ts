import { describe, expect, test } from "@jest/globals";
import { sharedEnd } from "../support/brokerEnds/index.ts";
import { describeWith, START_TIMEOUT_MS } from "../support/brokers/index.ts";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { databaseConfig, merged, ordersTo, useServices } from "../support/service.ts";

const services = useServices();
const { svc } = services.processes;

const deadRows = (database: TestDatabase) =>
  database.query<{ id: string; last_error: string }>(
    "SELECT id, last_error FROM inbox WHERE state = 'dead' ORDER BY created_at, id",
  );

describeWith(["nats"], "svc replay --inbox", () => {
  test(
    "receives again what a transform refused: transformed once, in order, under its id and key",
    async () => {
      const receiver = await services.receiver();
      const end = await sharedEnd("nats");
      services.defer(() => end[Symbol.asyncDispose]());
      const database = await services.database();
      const configured = (expression: string) => ({
        sources: {
          events: {
            ...end.source,
            idempotencyKeyPath: "$.id",
            aggregateIdPath: "$.key",
            topic: "all",
            transform: { expression },
          },
        },
        destinations: { receiver: { baseUrl: receiver.url } },
        routes: [{ topicPattern: "all", destination: "receiver" }],
      });
      const broken = await services.start({ database, config: configured('$error("not today")') });
      const sent = Array.from({ length: 20 }, (_, n) => ({
        key: "k",
        body: JSON.stringify({ id: `m${n}`, key: "k", n }),
      }));
      await end.send([...sent, { key: "k", body: "no json" }]);
      await eventually(async () => expect(await deadRows(database)).toHaveLength(21), { timeoutMs: 20_000 });
      const before = await deadRows(database);
      expect(await broken.metric("svc_inbox_dead_total")).toBe(21);
      await broken.stop();

      const config = configured('{"n": n, "times": $exists(times) ? times + 1 : 1}');
      const mended = await services.start({ database, config });
      const file = services.configFile(merged(config, { database: databaseConfig(database) }));
      const dry = await run(["replay", "--config", file, "--inbox", "--source", "events", "--dry-run"]);
      expect(dry).toMatch(/^21 rows would be moved to pending; the first 10 of them:$/m);
      expect(await run(["replay", "--config", file, "--inbox", "--source", "events"])).toMatch(
        /^20 rows moved to pending; others are unchanged: .*: its source refuses it again: see its last_error/m,
      );

      const requests = await receiver.received(20);
      expect(requests.map(({ body }) => JSON.parse(body.toString()) as object)).toEqual(
        sent.map((_, n) => ({ n, times: 1 })),
      );
      expect(requests.map(({ headers }) => [headers["x-message-id"], headers["x-idempotency-key"]])).toEqual(
        sent.map((_, n) => [before[n]?.id, `m${n}`]),
      );
      expect(await deadRows(database)).toEqual([
        { id: before[20]?.id, last_error: "the body is not a JSON document in UTF-8" },
      ]);
      const again = svc(["replay", "--config", file, "--inbox", "--created-after", "2020-01-01T00:00:00Z"]);
      expect((await again.exited).code).toBe(1);
      expect(again.stderr.join("\n")).toMatch(/^svc: 0 rows moved to pending; others are unchanged/m);
      expect(
        await database.query("SELECT action, detail FROM outbox_audit WHERE action = 'replay' ORDER BY at"),
      ).toMatchObject([
        { detail: expect.stringMatching(/^20 rows of \{"inbox":true,"source":"events"\}; others are unchanged/) },
        { detail: expect.stringMatching(/^0 rows/) },
      ]);
      expect((await mended.stop()).code).toBe(0);
    },
    3 * START_TIMEOUT_MS,
  );
});

describe("POST /admin/replay with inbox", () => {
  test("relays rows whose topic was empty once the source says where their type is, in order per key", async () => {
    const receiver = await services.receiver();
    const database = await services.database();
    const admin = { enabled: true, insecure: true };
    const orders = { topic: "{{ eventType }}", eventTypePath: "$.none", transform: { expression: '{"n": n + 1}' } };
    const config = ordersTo(receiver, { admin, sources: { orders } });
    const broken = await services.start({ database, config });
    for (let n = 0; n < 10; n += 1)
      expect((await broken.post({ id: `m${n}`, key: `k${n % 2}`, n, type: "orders.new" })).status).toBe(202);
    await eventually(async () => expect(await deadRows(database)).toHaveLength(10));
    expect(await broken.metric("svc_inbox_dead_total")).toBe(10);
    await broken.stop();

    const topic = { ...orders, topic: "orders.{{ eventType }}" };
    const mended = await services.start({ database, config: merged(config, { sources: { orders: topic } }) });
    const [first] = await deadRows(database);
    const byId = await mended.post({ by: "alice" }, { path: `/admin/messages/${first?.id}/replay` });
    expect([byId.status, byId.json()]).toEqual([200, { changed: 1 }]);
    await receiver.received(1);
    const answer = await mended.post({ inbox: true, source: "orders", by: "alice" }, { path: "/admin/replay" });
    expect([answer.status, answer.json()]).toEqual([200, { moved: 9 }]);

    const bodies = (await receiver.received(10)).map(({ body }) => JSON.parse(body.toString()) as { n: number });
    // Transformed once, at their receipt.
    for (const parity of [0, 1])
      expect(bodies.map(({ n }) => n).filter((n) => n % 2 === parity)).toEqual(
        Array.from({ length: 5 }, (_, each) => 2 * each + (parity === 1 ? 1 : 2)),
      );
    expect(await deadRows(database)).toEqual([]);
  });
});

/** Runs `svc` to its end. @returns its standard output */
async function run(args: readonly string[]): Promise<string> {
  const child = svc(args, { env: { LOG_LEVEL: "error" } });
  const { code } = await child.exited;
  expect([code, child.stderr]).toEqual([0, []]);
  return child.stdout.join("\n");
}

import { beforeAll, describe, expect, test } from "@jest/globals";
import pg from "pg";
import { TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { type DescribedApi, describedApi } from "../support/describedApi.ts";
import { eventually } from "../support/eventually.ts";
import { freePort } from "../support/ports.ts";
import type { Receiver } from "../support/receiver.ts";
import { ordersTo, type Service, useServices } from "../support/service.ts";

const services = useServices("block");
const TOKEN = "of-the-operator";
const RECEIVER = { url: "http://127.0.0.1:9" };
const MAX_PAYLOAD_BYTES = 4000;
const ADMIN = {
  enabled: true,
  auth: { type: "bearer", token: TOKEN },
  maxPayloadBytes: MAX_PAYLOAD_BYTES,
  maxTransformTimeoutMs: 300,
};
const TRANSFORM_TEST = "/admin/transform/test";
const REPLAY = "/admin/replay";

let database: TestDatabase;
/** Only the admin routes, so that no poller moves replayed rows. */
let service: Service;
let api: DescribedApi;

beforeAll(async () => {
  database = await services.database();
  const destinations = { other: { baseUrl: "http://127.0.0.1:9" } };
  const routes = [
    { topicPattern: "orders.**", destination: "receiver" },
    { topicPattern: "**", destination: "other" },
  ];
  const config = ordersTo(RECEIVER, { admin: ADMIN, destinations, routes });
  service = await services.start({ database, config, roles: ["admin"] });
  api = describedApi((await service.get("/openapi.json")).text);
});

/** Sends a request with the right credentials unless told otherwise; its answer is held against the OpenAPI document. */
async function ask(path: string, body: string | Buffer | object, headers: Readonly<Record<string, string>> = BEARER) {
  const answer = await service.post(body, { path, headers });
  api.check("POST", path, answer);
  return { status: answer.status, headers: answer.headers, body: answer.json() };
}

const BEARER = { authorization: `Bearer ${TOKEN}` };

const evaluate = (expression: string, more: object = {}) => ask(TRANSFORM_TEST, { expression, payload: {}, ...more });

describe("POST /admin/transform/test answers", () => {
  test("200 with the result and with what was bound", async () => {
    const { status, body } = await evaluate(
      '{"sum": $sum(lines.price), "topic": $topic, "source": $source, "n": $attempt}',
      {
        payload: { lines: [{ price: 2 }, { price: 3.5 }] },
        mockTopic: "orders.created",
        mockSource: "shop",
      },
    );
    expect(status).toBe(200);
    expect(body).toEqual({
      success: true,
      result: { sum: 5.5, topic: "orders.created", source: "shop", n: 0 },
      context: { messageId: expect.any(String), topic: "orders.created", attempt: 0, timestamp: expect.any(String) },
    });
  });

  test("while there is no console without admin.console", async () => {
    expect((await service.get("/console")).status).toBe(404);
  });

  test("405 to another method, and writes nothing", async () => {
    expect((await service.get(TRANSFORM_TEST)).status).toBe(405);
    const rows = await database.query("SELECT 1 FROM inbox UNION ALL SELECT 1 FROM outbox WHERE topic = 'test.topic'");
    expect(rows).toEqual([]);
  });
});

test("an expression that never looks at the clock is answered 400, and the service continues", async () => {
  const hostile = evaluate("$count($distinct([1..300000]))", { timeoutMs: 300 });
  expect((await service.get("/health/live")).status).toBe(200);
  expect(await hostile).toMatchObject({ status: 400, body: { success: false, error: expect.any(String) } });
  // A worker that is cleaning up its memory may be late for the next evaluation.
  await eventually(async () => expect(await evaluate("1 + 1")).toMatchObject({ status: 200, body: { result: 2 } }));
  expect(service.process.lines.filter((line) => line.includes('"level":"error"'))).toEqual([]);
});

describe("the admin routes of a process of every role", () => {
  let own: TestDatabase;
  let receiver: Receiver;
  let running: Service;
  let managementPort: number;
  beforeAll(async () => {
    [own, receiver, managementPort] = await Promise.all([services.database(), services.receiver(), freePort()]);
    const config = ordersTo(receiver, { admin: ADMIN, server: { managementPort }, outbox: { pollIntervalMs: 60_000 } });
    running = await services.start({ database: own, config });
  });

  const at = (port: number, path: string, body: string) =>
    fetch(`http://127.0.0.1:${port}${path}`, { method: "POST", headers: BEARER, body });

  test("are on the management port alone when there is one, and so is the OpenAPI document", async () => {
    for (const path of [TRANSFORM_TEST, REPLAY]) {
      const [data, management] = [await at(running.port, path, "{}"), await at(managementPort, path, "{}")];
      expect([path, data.status, management.status]).toEqual([path, 404, 400]);
    }
    expect((await running.get("/openapi.json")).status).toBe(404);
    const document = (await running.get("/openapi.json", managementPort)).text;
    expect(describedApi(document).operations).toContain(`POST ${REPLAY}`);
  });

  test("replay what is delivered by the poller of the same process at once, long before its poll interval is over", async () => {
    await running.post({ id: "m-1", type: "created" });
    await receiver.received(1);
    await eventually(async () => {
      expect(await own.query("SELECT 1 FROM outbox WHERE state = 'sent'")).toHaveLength(1);
    });
    const replayed = await at(managementPort, REPLAY, '{"topic":"orders.created"}');
    expect(await replayed.json()).toEqual({ moved: 1 });
    const [first, again] = await receiver.received(2);
    expect(again?.headers["x-message-id"]).toBe(first?.headers["x-message-id"]);
  });
});

/** A connection of the test's own, for a transaction. */
async function connect(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await client.connect();
  services.defer(() => client.end());
  return client;
}

const pendingRows = async (): Promise<number> =>
  Number(
    (await database.query("SELECT count(*) AS n FROM outbox WHERE topic = 'orders.last' AND state = 'pending'"))[0]?.n,
  );

// The last one: the service of this file stops.
describe("a replay", () => {
  test("ends between two batches when the service stops: 503 with what was moved", async () => {
    const rows = 3000;
    await database.query(
      "INSERT INTO outbox (topic, payload, state) SELECT 'orders.last', '{}', 'dead' FROM generate_series(1, $1)",
      [rows],
    );
    // No later batch comes past this row; by then the first one is moved.
    const lock = await connect();
    await lock.query("BEGIN");
    const middle = "SELECT id FROM outbox WHERE topic = 'orders.last' ORDER BY sequence LIMIT 1 OFFSET 1500";
    await lock.query(`SELECT 1 FROM outbox WHERE id = (${middle}) FOR UPDATE`);
    const replaying = service.post({ topic: "orders.last" }, { path: REPLAY, headers: BEARER });
    await eventually(async () => expect(await pendingRows()).toBeGreaterThan(0));
    const ended = service.stop();
    await service.process.waitForLine(/"msg":"stopping/);
    await lock.query("ROLLBACK");
    const answer = await replaying;
    api.check("POST", REPLAY, answer);
    const left = await pendingRows();
    const error = { error: "Service is shutting down", moved: left, finishedBefore: expect.stringMatching(/Z$/) };
    expect([answer.status, answer.json()]).toEqual([503, error]);
    expect(left).toBeLessThan(rows);
    expect((await ended).code).toBe(0);
  });
});

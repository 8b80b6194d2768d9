import { describe, expect, test } from "@jest/globals";
import { workerSizing } from "../../src/runtime/evaluation/pool.ts";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { type ConfigTree, ordersTo, type Service, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

interface Running {
  readonly database: TestDatabase;
  readonly receiver: Receiver;
  readonly service: Service;
}

/** Transforms at the three stages; retries come at once. */
async function running(
  transforms: { readonly source?: ConfigTree; readonly route?: ConfigTree; readonly destination?: ConfigTree },
  overrides: ConfigTree = {},
): Promise<Running> {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const { source, route, destination } = transforms;
  const config = ordersTo(receiver, {
    outbox: { retryBaseDelayMs: 20, maxAttempts: 3 },
    ...(source === undefined ? {} : { sources: { orders: { transform: source } } }),
    ...(destination === undefined ? {} : { destinations: { receiver: { transform: destination } } }),
    routes: [{ topicPattern: "**", destination: "receiver", ...(route === undefined ? {} : { transform: route }) }],
    ...overrides,
  });
  return { database, receiver, service: await services.start({ database, config }) };
}

const bodies = async (receiver: Receiver, count: number): Promise<unknown[]> =>
  (await receiver.received(count)).map(({ body }) => JSON.parse(body.toString("utf8")));

const outbox = (database: TestDatabase) =>
  database.query<{ id: string; state: string; attempt: number; payload: string; last_error: string | null }>(
    "SELECT id, state, attempt, payload, last_error FROM outbox ORDER BY sequence",
  );

const FAILS = '$error("no " & id)';

describe("a source transform", () => {
  test("changes the stored payload, and sees every variable of its stage", async () => {
    const expression =
      '{"body": $, "messageId": $messageId, "topic": $topic, "attempt": $attempt, "timestamp": $timestamp, "source": $source,' +
      ' "tenant": $headers."X-Tenant", "secret": $exists($headers.Authorization), "key": $idempotencyKey, "type": $eventType}';
    const auth = { type: "bearer", token: "of-the-sender" };
    const { database, receiver, service } = await running(
      { source: { expression } },
      { sources: { orders: { transform: { expression }, auth } } },
    );

    const headers = { "X-Tenant": "blue", authorization: "Bearer of-the-sender" };
    const answer = await service.post({ id: "m-1", type: "created" }, { headers });

    const { messageId } = answer.json() as { messageId: string };
    const [row] = await database.query<{ payload: string }>("SELECT payload FROM inbox");
    const stored = JSON.parse(row?.payload ?? "") as { timestamp: string };
    expect(stored).toEqual({
      body: { id: "m-1", type: "created" },
      messageId,
      topic: "created",
      attempt: 0,
      timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      source: "orders",
      tenant: "blue",
      secret: false,
      key: "m-1",
      type: "created",
    });
    expect(await bodies(receiver, 1)).toEqual([stored]);
  });

  test.each(["Fail", "Dead"])("that fails with onError %s answers 422 and stores no row", async (onError) => {
    const { database, service } = await running({ source: { expression: FAILS, onError } });

    const answer = await service.post({ id: "m-1", type: "created" });

    expect(answer.status).toBe(422);
    expect(answer.json()).toEqual({ error: expect.stringMatching(/^Transform failed: .*no m-1/) });
    expect(await database.query("SELECT id FROM inbox")).toEqual([]);
    expect((await service.get("/metrics")).text).toContain('svc_inbox_rejections_total{reason="transform_failed"} 1');
    expect((await service.get("/metrics")).text).toContain(`svc_transform_failures_total{strategy="${onError}"} 1`);
  });

  test("that fails with onError Skip stores the body as it came", async () => {
    const { database, service } = await running({ source: { expression: FAILS, onError: "Skip" } });
    const body = '{ "id":"m-1", "type":"created", "n": 12345678901234567890 }';

    expect((await service.post(body)).status).toBe(202);

    expect(await database.query("SELECT payload FROM inbox")).toEqual([{ payload: body }]);
    expect(await service.metric("svc_inbox_rejections_total")).toBe(0);
    expect((await service.get("/metrics")).text).toContain('svc_transform_failures_total{strategy="Skip"} 1');
  });

  test("runs before the duplicate check: a repeat that it now rejects gets 422, not 200", async () => {
    const { service } = await running({ source: { expression: '$exists(bad) ? $error("bad") : $' } });

    expect((await service.post({ id: "m-1", type: "created" })).status).toBe(202);
    expect((await service.post({ id: "m-1", type: "created" })).status).toBe(200);
    expect((await service.post({ id: "m-1", type: "created", bad: true })).status).toBe(422);
  });

  test("that gives nothing is a failure, never the text undefined", async () => {
    const { service } = await running({ source: { expression: "missing" } });

    const answer = await service.post({ id: "m-1", type: "created" });

    expect([answer.status, answer.text]).toEqual([422, expect.not.stringContaining("undefined")]);
  });
});

describe("delivery transforms", () => {
  test("run route first, then destination, on the delivered body only", async () => {
    const { database, receiver, service } = await running({
      route: {
        expression: '{"route": $, "topic": $topic, "unbound": [$source, $headers, $idempotencyKey, $eventType]}',
      },
      destination: { expression: '{"destination": $, "id": $messageId, "attempt": $attempt, "at": $timestamp}' },
    });
    const body = '{"id":"m-1","type":"created"}';

    await service.post(body);

    const [delivered] = await bodies(receiver, 1);
    const [row] = await outbox(database);
    const [{ created }] = (await database.query("SELECT created_at AS created FROM outbox")) as [{ created: Date }];
    expect(delivered).toEqual({
      destination: { route: JSON.parse(body), topic: "orders.created", unbound: [] },
      id: row?.id,
      attempt: 0,
      at: created.toISOString(),
    });
    expect(row?.payload).toBe(body);
  });

  test.each(["route", "destination"] as const)(
    "at the %s that fail with Fail are retried, and dead at the ceiling",
    async (stage) => {
      const { database, receiver, service } = await running({ [stage]: { expression: FAILS } });

      await service.post({ id: "m-1", type: "created" });

      await eventually(async () => expect((await outbox(database))[0]?.state).toBe("dead"));
      const [row] = await outbox(database);
      expect(row?.attempt).toBe(3);
      expect(row?.last_error).toMatch(new RegExp(`^the ${stage} transform failed: .*no m-1`));
      expect(receiver.requests).toEqual([]);
      expect(await service.metric("svc_transform_failures_total")).toBe(3);
    },
  );

  test.each(["route", "destination"] as const)(
    "at the %s that fail with Dead make the row dead at once",
    async (stage) => {
      const { database, receiver, service } = await running({ [stage]: { expression: FAILS, onError: "Dead" } });

      await service.post({ id: "m-1", type: "created" });

      await eventually(async () => expect((await outbox(database))[0]?.state).toBe("dead"));
      expect((await outbox(database))[0]?.attempt).toBe(0);
      expect(receiver.requests).toEqual([]);
      expect((await service.get("/metrics")).text).toContain('svc_transform_failures_total{strategy="Dead"} 1');
    },
  );

  test("that fail with Skip pass their input on unchanged", async () => {
    const { receiver, service } = await running({
      route: { expression: FAILS, onError: "Skip" },
      destination: { expression: '{"wrapped": $}' },
    });

    await service.post({ id: "m-1", type: "created" });

    expect(await bodies(receiver, 1)).toEqual([{ wrapped: { id: "m-1", type: "created" } }]);
    expect((await service.get("/metrics")).text).toContain('svc_transform_failures_total{strategy="Skip"} 1');
  });

  test("see the attempt of a retry", async () => {
    const { receiver, service } = await running({ destination: { expression: "$attempt" } });
    receiver.answerNext({ status: 500 }, { status: 500 });

    await service.post({ id: "m-1", type: "created" });

    expect(await bodies(receiver, 3)).toEqual([0, 1, 2]);
  });

  test("of a payload that is no JSON fail with a reason", async () => {
    const { database } = await running({ destination: { expression: "$" } });

    await database.query("INSERT INTO outbox (topic, payload, max_attempts) VALUES ('orders.sql', '<xml/>', 1)");

    await eventually(async () =>
      expect((await outbox(database))[0]?.last_error).toMatch(
        /^the destination transform failed: the input is not a JSON document/,
      ),
    );
  });
});

describe("a hostile payload", () => {
  test.each([
    ["a range as long as it says", "[1..n]", { n: 10_000_000 }],
    ["nested maps over ranges", "$map([1..n], function($a) {$map([1..n], function($b) {$a * $b})})", { n: 100_000 }],
    ["deep recursion", "($f := function($x) {$x = 0 ? 0 : 1 + $f($x - 1)}; $f(n))", { n: 1_000_000 }],
    ["text against a backtracking pattern", "$match(text, /^(a+)+$/)", { text: `${"a".repeat(50_000)}!` }],
    ["a width to pad to", "$length($pad('x', n))", { n: 500_000_000 }],
    ["an array without repetitions", "$count($distinct(list))", { list: Array.from({ length: 100_000 }, (_, n) => n) }],
  ])("with %s does not stop the process from serving others", async (_, expression, payload) => {
    const { database, service } = await running(
      { source: { expression } },
      {
        sources: {
          orders: { transform: { expression } },
          plain: { path: "/plain", idempotencyKeyPath: "$.id", topic: "plain" },
        },
      },
    );
    let answered = false;
    const hostile = service.post({ id: "m-1", type: "created", ...payload }).finally(() => {
      answered = true;
    });

    let served = 0;
    while (!answered) {
      served += 1;
      expect((await service.post({ id: `plain-${served}` }, { path: "/inbox/plain" })).status).toBe(202);
    }

    expect([202, 422]).toContain((await hostile).status);
    expect((await service.post({ id: "after" }, { path: "/inbox/plain" })).status).toBe(202);
    const [{ n }] = (await database.query("SELECT count(*)::int AS n FROM inbox WHERE source = 'plain'")) as [
      { n: number },
    ];
    expect(n).toBe(served + 1);
  });
});

describe("the workers", () => {
  const announced = ({ process }: Service) =>
    process.stdout.filter((line) => line.includes('"msg":"evaluation workers are up"'));

  test("are as many as the log says at the start, and none without a transform", async () => {
    const { workers, memoryLimitMb } = workerSizing();
    const { service } = await running({ route: { expression: "$" } });
    expect(announced(service).map((line) => JSON.parse(line))).toMatchObject([{ workers, memoryLimitMb }]);
    expect(announced((await running({})).service)).toEqual([]);
  });
});

describe("a transform that does not compile", () => {
  test.each([
    ["an expression", "routes[0].transform.expression", "{", /character \d+/],
    [
      "a regular expression that cannot run in linear time",
      "routes[0].transform.expression",
      "$match(a, /(?=x)y/)",
      /\(\?=x\)y/,
    ],
  ])("for %s stops the start with the key path and the position", async (_, path, expression, position) => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const config = ordersTo(receiver, {
      routes: [{ topicPattern: "**", destination: "receiver", transform: { expression } }],
    });

    const service = await services.launch({ database, config });

    expect((await service.process.exited).code).toBe(2);
    const printed = service.process.stderr.join("\n");
    expect(printed).toContain(path);
    expect(printed).toMatch(position);
  });
});

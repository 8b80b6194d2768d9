import { beforeAll, describe, expect, test } from "@jest/globals";
import { workerSizing } from "../../src/runtime/evaluation/pool.ts";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { type ConfigTree, ordersTo, type Service, useServices } from "../support/service.ts";

const services = useServices("block");
failOnLeaks("block");

const SENDER = { type: "bearer", token: "of-the-sender" };

/** Sources by their names, which are their paths: their transforms, and what else they have. */
const SOURCES: Readonly<Record<string, ConfigTree>> = {
  variables: {
    transform: {
      expression:
        '{"body": $, "messageId": $messageId, "topic": $topic, "attempt": $attempt, "timestamp": $timestamp, "source": $source,' +
        ' "tenant": $headers."X-Tenant", "secret": $exists($headers.Authorization), "key": $idempotencyKey, "type": $eventType}',
    },
    auth: SENDER,
  },
  rejects: { transform: { expression: '$exists(bad) ? $error("bad") : $' } },
  plain: {},
};

/** The transforms of the route and the destination of the topic `both`. */
const OF_ROUTE = '{"route": $, "topic": $topic, "unbound": [$source, $headers, $idempotencyKey, $eventType]}';
const OF_DESTINATION = '{"destination": $, "id": $messageId, "attempt": $attempt, "at": $timestamp}';

const HOSTILE: readonly (readonly [string, string, object])[] = [
  ["a width to pad to", "$length($pad('x', n))", { n: 500_000_000 }],
  ["an array without repetitions", "$count($distinct(list))", { list: Array.from({ length: 100_000 }, (_, n) => n) }],
];

let database: TestDatabase;
let receiver: Receiver;
let service: Service;

beforeAll(async () => {
  [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const hostile = HOSTILE.map(([, expression], n) => [`hostile-${n}`, { transform: { expression } }] as const);
  const sources = [...Object.entries(SOURCES), ...hostile].map(([name, settings]) => [
    name,
    { path: `/${name}`, idempotencyKeyPath: "$.id", eventTypePath: "$.type", topic: "{{ eventType }}", ...settings },
  ]);
  const config = ordersTo(receiver, {
    sources: Object.fromEntries(sources),
    destinations: { both: { baseUrl: receiver.url, path: "/both", transform: { expression: OF_DESTINATION } } },
    routes: [
      { topicPattern: "both", destination: "both", transform: { expression: OF_ROUTE } },
      { topicPattern: "**", destination: "receiver" },
    ],
  });
  service = await services.start({ database, config });
});

const post = (source: string, body: string | object, headers: Readonly<Record<string, string>> = {}) =>
  service.post(body, { path: `/inbox/${source}`, headers });

const requestsTo = (path: string) => receiver.requests.filter(({ url }) => url === `/${path}`);

/** The bodies of the first deliveries to a path. */
const bodies = async (path: string, count: number): Promise<unknown[]> => {
  await eventually(() => expect(requestsTo(path)).toHaveLength(count));
  return requestsTo(path).map(({ body }) => JSON.parse(body.toString("utf8")));
};

const stored = (source: string) =>
  database.query<{ payload: string }>("SELECT payload FROM inbox WHERE source = $1 ORDER BY created_at", [source]);

describe("a source transform", () => {
  test("changes the stored payload, and sees every variable of its stage", async () => {
    const headers = { "X-Tenant": "blue", authorization: `Bearer ${SENDER.token}` };

    const answer = await post("variables", { id: "m-1", type: "created" }, headers);

    const { messageId } = answer.json() as { messageId: string };
    const [row] = await stored("variables");
    const payload = JSON.parse(row?.payload ?? "") as { timestamp: string };
    expect(payload).toEqual({
      body: { id: "m-1", type: "created" },
      messageId,
      topic: "created",
      attempt: 0,
      timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      source: "variables",
      tenant: "blue",
      secret: false,
      key: "m-1",
      type: "created",
    });
    expect(await bodies("hook", 1)).toEqual([payload]);
  });

  test("runs before the duplicate check: a repeat that it now rejects gets 422, not 200", async () => {
    expect((await post("rejects", { id: "m-1", type: "created" })).status).toBe(202);
    expect((await post("rejects", { id: "m-1", type: "created" })).status).toBe(200);
    expect((await post("rejects", { id: "m-1", type: "created", bad: true })).status).toBe(422);
  });
});

describe("delivery transforms", () => {
  test("run route first, then destination, on the delivered body only", async () => {
    const body = '{"id":"m-1","type":"both"}';

    await post("plain", body);

    const [delivered] = await bodies("both", 1);
    const [row] = await database.query<{ id: string; payload: string; created_at: Date }>(
      "SELECT id, payload, created_at FROM outbox WHERE topic = 'both'",
    );
    expect(delivered).toEqual({
      destination: { route: JSON.parse(body), topic: "both", unbound: [] },
      id: row?.id,
      attempt: 0,
      at: row?.created_at.toISOString(),
    });
    expect(row?.payload).toBe(body);
  });
});

describe("a hostile payload", () => {
  test.each(HOSTILE.map(([what, , payload], n) => [what, `hostile-${n}`, payload] as const))(
    "with %s does not stop the process from serving others",
    async (_, source, payload) => {
      let answered = false;
      const hostile = post(source, { id: "m-1", type: "created", ...payload }).finally(() => {
        answered = true;
      });

      let served = 0;
      const serve = async () => {
        served += 1;
        expect((await post("plain", { id: `beside ${source}, ${served}`, type: "created" })).status).toBe(202);
      };
      while (!answered) await serve();

      expect([202, 422]).toContain((await hostile).status);
      await serve();
      const rows = await database.query("SELECT 1 FROM inbox WHERE idempotency_key LIKE $1", [`beside ${source}, %`]);
      expect(rows).toHaveLength(served);
    },
  );
});

test("the workers are as many as the log says at the start, and none without a transform", async () => {
  const announced = ({ process }: Service) =>
    process.stdout.filter((line) => line.includes('"msg":"evaluation workers are up"'));
  const { workers, memoryLimitMb } = workerSizing();
  expect(announced(service).map((line) => JSON.parse(line))).toMatchObject([{ workers, memoryLimitMb }]);

  const plain = await services.start({ database: await services.database(), config: ordersTo(receiver) });
  expect(announced(plain)).toEqual([]);
});

test("a transform that does not compile stops the start with the key path and the position", async () => {
  const routeWith = (expression: string) => ({
    topicPattern: "**",
    destination: "receiver",
    transform: { expression },
  });
  const config = ordersTo(receiver, { routes: [routeWith("{"), routeWith("$match(a, /(?=x)y/)")] });

  const { process } = await services.launch({ database, config });

  expect((await process.exited).code).toBe(2);
  const problem = (path: string) => process.stderr.find((line) => line.includes(`${path}.transform.expression`));
  expect(problem("routes[0]")).toMatch(/character \d+/);
  // No engine of linear time has it.
  expect(problem("routes[1]")).toMatch(/\(\?=x\)y/);
});

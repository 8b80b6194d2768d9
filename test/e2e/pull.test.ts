import { once } from "node:events";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { seeded } from "../support/random.ts";
import { type ConfigTree, type HttpAnswer, merged, type Service, useServices } from "../support/service.ts";

const services = useServices("block");
failOnLeaks("block");

const CLEAN = { code: 0, signal: null };
const AUTHORIZED = { authorization: "Bearer pull-sesame-1" };
const attributes = { idempotencyKeyPath: "$.id", aggregateIdPath: "$.key", eventTypePath: "$.type" };

/** One pull source `orders` at `/inbox/orders` and `/pull/orders`, and one push source. */
const pulling = (overrides: ConfigTree = {}): ConfigTree =>
  merged(
    {
      inbox: { pull: { enabled: true, auth: { token: "pull-sesame-1" } } },
      sources: {
        orders: { ...attributes, path: "/orders", consumption: "pull" },
        pushed: { ...attributes, path: "/pushed" },
      },
    },
    overrides,
  );

interface Message {
  readonly id: string;
  readonly aggregateId: string;
  readonly idempotencyKey: string;
  readonly attempt: number;
}

/** What a pull client does at one replica. */
function clientOf(service: Pick<Service, "post">) {
  const ask = (operation: string, body: object | string = "") =>
    service.post(body, { path: `/pull/orders/${operation}`, headers: AUTHORIZED });
  return {
    ask,
    async claim(body: object = {}) {
      const answer = await ask("claim", body);
      expect(answer.status).toBe(200);
      return answer.json() as { readonly claimToken: string | null; readonly messages: readonly Message[] };
    },
  };
}

/** More than any message needs that is rejected at random. */
const MAX_ATTEMPTS = 1000;

let database: TestDatabase;
/** Two replicas of one configuration. */
let service: Service;
let other: Service;
beforeAll(async () => {
  database = await services.database();
  const config = pulling({ inbox: { pull: { maxAttempts: MAX_ATTEMPTS } } });
  [service, other] = await Promise.all([services.start({ database, config }), services.start({ database, config })]);
});
beforeEach(async () => {
  await database.query("DELETE FROM inbox");
});

const keysOf = ({ messages }: { readonly messages: readonly Message[] }) =>
  messages.map(({ idempotencyKey }) => idempotencyKey);
const seen = (answer: HttpAnswer) => [answer.status, answer.json()];

describe("a pull client", () => {
  test("takes messages out, byte for byte, and acknowledges them; no relay touches them", async () => {
    const client = clientOf(service);
    const body = ' {"key":"k", "n":12345678901234567890,"m":1.0,\n"b":1,"a":"\\u0000é","id":"o-1"} ';
    await service.post(body, { headers: { "x-tag": "t", "x-correlation-id": "c-1" } });

    const answer = await client.ask("claim");

    expect(answer.text).toContain(`"payload":${body}}`);
    const { claimToken, messages } = answer.json() as { claimToken: string; messages: readonly Message[] };
    const [row] = await database.query<{ id: string; created_at: Date }>("SELECT id, created_at FROM inbox");
    expect(messages).toEqual([
      {
        id: row?.id,
        aggregateId: "k",
        eventType: null,
        idempotencyKey: "o-1",
        correlationId: "c-1",
        attempt: 1,
        createdAt: row?.created_at.toISOString(),
        headers: expect.objectContaining({ "x-tag": "t" }),
        payload: expect.any(Object),
      },
    ]);
    expect(await client.claim()).toEqual({ claimToken: null, leaseMs: 30_000, messages: [] });
    expect(seen(await client.ask("extend", { claimToken, leaseMs: 60_000 }))).toEqual([
      200,
      { extended: [row?.id], lost: [] },
    ]);
    expect(seen(await client.ask("ack", { claimToken }))).toEqual([200, { acknowledged: [row?.id], lost: [] }]);
    expect((await client.ask("ack", { claimToken })).status).toBe(409);
    expect(await database.query("SELECT state, claim_token, processed_at IS NULL AS open FROM inbox")).toEqual([
      { state: "processed", claim_token: null, open: false },
    ]);
    expect(await database.query("SELECT id FROM outbox")).toEqual([]);
    expect(await service.metric("svc_claim_rows_sum")).toBeGreaterThanOrEqual(1);
  });

  test("that rejects a message to the end finds it dead, with the reason but no secret on the row and in the log", async () => {
    const client = clientOf(service);
    await service.post({ id: "o-1", key: "k" });
    await service.post({ id: "o-2", key: "k" });
    await database.query("UPDATE inbox SET attempt = $1 WHERE idempotency_key = 'o-1'", [MAX_ATTEMPTS - 2]);
    const error = "no stock (token pull-sesame-1)";

    const first = await client.claim();
    const [poison, next] = first.messages;
    expect(seen(await client.ask("nack", { claimToken: first.claimToken, ids: [poison?.id], error }))).toEqual([
      200,
      { retried: [poison?.id], dead: [], released: [next?.id], lost: [] },
    ]);
    const second = await client.claim({ max: 1 });
    expect(seen(await client.ask("nack", { claimToken: second.claimToken, error }))).toEqual([
      200,
      { retried: [], dead: [poison?.id], released: [], lost: [] },
    ]);

    const { messages } = await client.claim();
    expect(messages.map(({ id, attempt }) => [id, attempt])).toEqual([[next?.id, 1]]);
    expect(await database.query("SELECT last_error FROM inbox WHERE state = 'dead'")).toEqual([
      { last_error: "no stock (token ***)" },
    ]);
    await service.process.waitForLine(/"msg":"inbox row is dead"/);
    expect(service.process.lines.join("\n")).not.toContain("sesame");
  });
});

describe("a client that waits", () => {
  test("gets a message at once, whichever replica receives it", async () => {
    const client = clientOf(service);
    for (const [receiver, id] of [
      [service, "o-1"],
      [other, "o-2"],
    ] as const) {
      const waiting = client.claim({ waitMs: 60_000 });
      const since = performance.now();
      expect((await receiver.post({ id, key: id })).status).toBe(202);

      expect(keysOf(await waiting)).toEqual([id]);
      expect(performance.now() - since).toBeLessThan(20_000);
    }
  });

  test("gets the messages of a client that was killed when their lease ends, and keeps them", async () => {
    const client = clientOf(service);
    await service.post({ id: "o-1", key: "k" });
    await service.post({ id: "o-2", key: "k" });
    const killed = await client.claim({ max: 1, leaseMs: 1000 });
    expect(keysOf(killed)).toEqual(["o-1"]);

    const taken = await client.claim({ waitMs: 60_000 });

    expect(taken.messages.map(({ idempotencyKey, attempt }) => [idempotencyKey, attempt])).toEqual([
      ["o-1", 2],
      ["o-2", 1],
    ]);
    const late = await client.ask("ack", { claimToken: killed.claimToken });
    expect([late.status, late.json()]).toMatchObject([409, { acknowledged: [], lost: [] }]);
    expect((await client.ask("ack", { claimToken: taken.claimToken })).status).toBe(200);
  });
});

describe("two replicas", () => {
  test("keep the order of each aggregate while clients come, fail and vanish", async () => {
    const replicas = [service, other] as const;
    const aggregates = 4;
    const total = 120;
    const sent = Array.from({ length: total }, (_, n) => ({ id: `o-${n}`, key: `k-${n % aggregates}`, n }));
    const processed: string[] = [];
    const random = seeded(7);
    const consume = async (client: ReturnType<typeof clientOf>) => {
      while (processed.length < total) {
        const vanishes = random() < 0.05;
        const { claimToken, messages } = await client.claim({
          max: 1 + Math.floor(random() * 8),
          waitMs: 500,
          leaseMs: vanishes ? 1000 : 60_000,
        });
        if (vanishes) continue;
        const failed = new Set<string>();
        for (const { id, aggregateId, idempotencyKey } of messages) {
          if (failed.has(aggregateId)) continue;
          if (random() < 0.1) {
            failed.add(aggregateId);
            await client.ask("nack", { claimToken, ids: [id], delayMs: 10, error: "again" });
          } else {
            processed.push(idempotencyKey);
            expect((await client.ask("ack", { claimToken, ids: [id] })).status).toBe(200);
          }
        }
      }
    };

    const consuming = [0, 1, 2, 3, 4].map((n) => consume(clientOf(replicas[n % 2] ?? replicas[0])));
    for (const [n, message] of sent.entries()) await replicas[n % 2]?.post(message);
    await Promise.all(consuming);

    expect(processed.toSorted()).toEqual(sent.map(({ id }) => id).toSorted());
    for (let key = 0; key < aggregates; key += 1) {
      const own = processed.filter((id) => Number(id.slice(2)) % aggregates === key);
      expect(own).toEqual(sent.filter(({ n }) => n % aggregates === key).map(({ id }) => id));
    }
    await eventually(async () => {
      expect(await database.query("SELECT DISTINCT state FROM inbox")).toEqual([{ state: "processed" }]);
    });
  }, 60_000);
});

describe("a client that waits to the end", () => {
  test("is answered without messages when the service stops, and does not hold up the stop", async () => {
    const headers = { ...AUTHORIZED, expect: "100-continue", "transfer-encoding": "chunked" };
    const to = {
      host: "127.0.0.1",
      port: service.port,
      path: "/pull/orders/claim",
      method: "POST",
      agent: false as const,
    };
    const waiting = httpRequest({ ...to, headers });
    waiting.flushHeaders();
    // The service asks for the body: from here on the request is in flight.
    await once(waiting, "continue");
    waiting.end('{"waitMs":60000}');
    const answered = once(waiting, "response");

    service.process.kill("SIGTERM");

    const [answer] = (await answered) as [IncomingMessage];
    let text = "";
    for await (const chunk of answer) text += chunk;
    expect([answer.statusCode, text]).toEqual([200, '{"claimToken":null,"leaseMs":30000,"messages":[]}']);
    expect(await service.process.exited).toEqual(CLEAN);
    expect(service.process.lines.join("\n")).not.toMatch(/cut short|cut off/);
  });
});

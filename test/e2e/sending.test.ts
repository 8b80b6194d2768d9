import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { CloudEvent, HTTP } from "cloudevents";
import { Webhook } from "standardwebhooks";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { type Service, startOver, useServices } from "../support/service.ts";

const services = useServices("block");
failOnLeaks("block");

const NEW = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

let database: TestDatabase;
let receiver: Receiver;
let service: Service;

/** Each test has a destination of its own, which the first part of its topics names. */
beforeAll(async () => {
  [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const source = { idempotencyKeyPath: "$.id", aggregateIdPath: "$.key", eventTypePath: "$.type" };
  const config = {
    sources: {
      binary: { path: "/binary", cloudEvents: true, topic: "binary.{{ eventType }}" },
      structured: { path: "/structured", cloudEvents: true, topic: "structured.{{ eventType }}" },
      plain: { ...source, path: "/plain", topic: "structured.{{ eventType }}" },
    },
    destinations: {
      signed: {
        baseUrl: `${receiver.url}/hooks`,
        path: "/orders/{{ key }}",
        method: "PUT",
        headers: { "X-Event": "{{ topic }}" },
        successStatuses: [409],
        deadStatuses: [410],
        signing: { scheme: "standard-webhooks", secrets: [NEW, OLD] },
      },
      binary: { baseUrl: receiver.url, cloudEvents: { source: "/svc" } },
      batched: { baseUrl: receiver.url, batch: { maxMessages: 50 }, deadStatuses: [422] },
      structured: { baseUrl: receiver.url, cloudEvents: { source: "/shop", mode: "structured" } },
    },
    routes: ["signed", "binary", "batched", "structured"].map((name) => ({
      topicPattern: `${name}.*`,
      destination: name,
    })),
    outbox: { concurrency: 64 },
  };
  service = await services.start({ database, config });
});
beforeEach(() => startOver(database, receiver));

describe("an HTTP destination", () => {
  test("signs each message, puts it at its own path, and gives up at once on a dead status", async () => {
    receiver.answer = ({ url }, response) => {
      response.statusCode = url.includes("gone") ? 410 : url.includes("again") ? 409 : 200;
      response.end();
    };
    await database.query(
      `INSERT INTO outbox (topic, key, payload, headers) VALUES ('signed.paid', 'a/ä', '{"n":1}', '{"webhook-signature":"v1,forged"}'),
         ('signed.paid', 'again', '{"n":2}', '{}'), ('signed.paid', 'gone', '{"n":3}', '{}'), ('signed.paid', NULL, '{"n":4}', '{}')`,
    );
    const states = () => database.query("SELECT key, state, attempt, last_error FROM outbox ORDER BY sequence");
    await eventually(async () => {
      expect(await states()).toMatchObject([
        { key: "a/ä", state: "sent", attempt: 0 },
        { key: "again", state: "sent", attempt: 0 },
        {
          key: "gone",
          state: "dead",
          attempt: 1,
          last_error: expect.stringMatching(/^PUT http.*\/orders\/\{\{ key \}\} was answered 410/),
        },
        { key: null, state: "pending", last_error: "the path has no value for {{ key }} in this row" },
      ]);
    });
    const [first] = receiver.requests.filter(({ url }) => !/gone|again/.test(url));
    expect([first?.method, first?.url]).toEqual(["PUT", "/hooks/orders/a%2F%C3%A4"]);
    expect(first?.headers["x-event"]).toBe("signed.paid");
    for (const secret of [NEW, OLD])
      expect(new Webhook(secret).verify(String(first?.body), first?.headers as Record<string, string>)).toEqual({
        n: 1,
      });
    expect(receiver.requests.filter(({ url }) => url.includes("gone"))).toHaveLength(1);
    // It would be tried for a long time.
    await database.query("DELETE FROM outbox WHERE key IS NULL");
  });

  test("gets events that came structured or binary, as the events that they were", async () => {
    const post = (message: { readonly body: unknown; readonly headers: object }) =>
      service.post(String(message.body), { path: "/inbox/binary", headers: message.headers as Record<string, string> });
    const event = new CloudEvent({
      id: "e-1",
      source: "/shop",
      type: "paid",
      subject: "o-1",
      data: { total: 1 },
      trace: "t",
    });
    expect((await post(HTTP.structured(event))).status).toBe(202);
    expect((await post(HTTP.binary(event))).status).toBe(200);
    expect((await post(HTTP.binary(event.cloneWith({ id: "e-2", subject: "o-2" })))).status).toBe(202);
    const refused = await post({ body: "{}", headers: {} });
    expect([refused.status, refused.json()]).toEqual([400, { error: expect.stringContaining("is not a CloudEvent") }]);
    await eventually(() => expect(receiver.requests).toHaveLength(2));
    const got = receiver.requests.map(
      ({ headers, body }) => HTTP.toEvent({ headers, body: String(body) }) as CloudEvent,
    );
    const [first, second] = got.toSorted((a, b) => a.id.localeCompare(b.id));
    expect(first).toMatchObject({
      id: "e-1",
      source: "/shop",
      type: "paid",
      subject: "o-1",
      trace: "t",
      data: { total: 1 },
    });
    expect(second).toMatchObject({ id: "e-2", subject: "o-2", time: event.time });
    const rows = await database.query("SELECT topic, key, payload FROM outbox ORDER BY key");
    expect(rows).toEqual(["o-1", "o-2"].map((key) => ({ topic: "binary.paid", key, payload: '{"total":1}' })));
  });

  test("sends what waits in batches, in order per key, and settles each row by itself", async () => {
    const seen: { readonly k: string; readonly n: number }[] = [];
    let requests = 0;
    receiver.answer = ({ body }, response) => {
      const items = JSON.parse(String(body)) as { readonly k: string; readonly n: number; readonly bad?: true }[];
      requests += 1;
      seen.push(...items);
      response.statusCode = 207;
      response.end(JSON.stringify(items.map(({ bad }) => ({ status: bad ? 422 : 202 }))));
    };
    await database.query(
      `INSERT INTO outbox (topic, key, payload) SELECT 'batched.x', 'k' || n % 100,
         CASE WHEN n % 250 = 7 THEN json_build_object('k', 'k' || n % 100, 'n', n, 'bad', true) ELSE json_build_object('k', 'k' || n % 100, 'n', n) END::text
       FROM generate_series(1, 500) n`,
    );
    const count = "SELECT state, count(*)::int AS rows FROM outbox GROUP BY state ORDER BY state";
    await eventually(async () =>
      expect(await database.query(count)).toEqual([
        { state: "dead", rows: 2 },
        { state: "sent", rows: 498 },
      ]),
    );
    expect(seen).toHaveLength(500);
    expect(requests).toBeLessThan(100);
    const byKey = new Map<string, number[]>();
    for (const { k, n } of seen) byKey.set(k, [...(byKey.get(k) ?? []), n]);
    for (const [key, numbers] of byKey) expect([key, numbers]).toEqual([key, numbers.toSorted((a, b) => a - b)]);
  });

  test("sends CloudEvents, which keep what they were when they came as events", async () => {
    const came = {
      "ce-specversion": "1.0",
      "ce-id": "e-1",
      "ce-source": "/partner",
      "ce-type": "made",
      "ce-trace": "t",
    };
    expect((await service.post({ id: "o-1" }, { path: "/inbox/structured", headers: came })).status).toBe(202);
    // The sender of a plain source does not choose what the event is.
    expect((await service.post({ id: "o-2", type: "claimed" }, { path: "/inbox/plain", headers: came })).status).toBe(
      202,
    );
    await database.query(`INSERT INTO outbox (topic, key, payload) VALUES ('structured.paid', 'k', '{"total":1.0}')`);
    await eventually(() => expect(receiver.requests).toHaveLength(3));
    const events = receiver.requests.map(({ headers, body }) => {
      expect(headers["content-type"]).toBe("application/cloudevents+json; charset=utf-8");
      return HTTP.toEvent({ headers, body: String(body) }) as CloudEvent;
    });
    expect(events.find(({ source }) => source === "/partner")).toMatchObject({ id: "e-1", type: "made", trace: "t" });
    const claimed = events.find(({ type }) => type === "structured.claimed");
    expect(claimed).toMatchObject({ source: "/shop", data: { id: "o-2" } });
    expect(claimed).not.toHaveProperty("trace");
    const own = events.find(({ type }) => type === "structured.paid");
    expect(own).toMatchObject({ type: "structured.paid", subject: "k", data: { total: 1 } });
    const [row] = await database.query<{ id: string }>("SELECT id FROM outbox WHERE key = 'k'");
    expect(own?.id).toBe(row?.id);
    expect((await service.stop()).code).toBe(0);
  });
});

import { beforeAll, describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import type { Receiver } from "../support/receiver.ts";
import { type Service, useServices } from "../support/service.ts";
import { SENDERS, type Sent } from "../unit/http/webhooks/senders.ts";

const services = useServices("block");
let database: TestDatabase;
let receiver: Receiver;
let service: Service;

/** A source for every sender, with the new and the old secret. */
const SOURCES = SENDERS.map((sender, index) => ({
  name: `${sender.name}-${index}`,
  sender,
  next: sender.newKey(),
  old: sender.newKey(),
}));

beforeAll(async () => {
  [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const sources = SOURCES.map(({ name, sender, next, old }) => {
    const auth = { provider: sender.name, secrets: [next.secret, old.secret], ...sender.settings };
    return [name, { path: `/${name}`, topic: "{{ source }}.{{ eventType }}", auth }];
  });
  const config = {
    sources: {
      ...Object.fromEntries(sources),
      events: {
        path: "/events",
        idempotencyKeyPath: "$.id",
        eventTypePath: "$.type",
        webhookOrigins: ["grid.example"],
      },
    },
    destinations: { receiver: { baseUrl: receiver.url, path: "/hook" } },
    routes: [{ topicPattern: "**", destination: "receiver" }],
  };
  service = await services.start({ database, config });
});

const post = (name: string, { headers, body, query = "" }: Sent) =>
  service.post(body, { path: `/inbox/${name}${query}`, headers });
const rowsOf = (name: string) =>
  database.query("SELECT idempotency_key, event_type, payload, headers FROM inbox WHERE source = $1", [name]);

describe("a source with a provider, in a service of its own process", () => {
  test.each(SOURCES.map((source): [string, (typeof SOURCES)[number]] => [source.name, source]))(
    "%s: its webhooks are stored once and delivered, forged ones are neither",
    async (name, { sender, next, old }) => {
      const forged = await post(name, sender.send(sender.newKey().signing, Date.now()));
      expect([forged.status, Object.keys(forged.json() as object)]).toEqual([401, ["error"]]);
      expect(await rowsOf(name)).toEqual([]);

      expect((await post(name, sender.send(next.signing, Date.now()))).status).toBe(202);
      const again = await post(name, sender.send(old.signing, Date.now()));
      // A key that is a digest of the body differs if the body holds the secret or the time.
      expect([200, 202]).toContain(again.status);
      const { key, type } = sender.expected;
      const [row] = await rowsOf(name);
      expect(row).toMatchObject({
        idempotency_key: typeof key === "string" ? key : expect.stringMatching(key),
        event_type: type,
      });
      await eventually(() => {
        const delivered = receiver.requests.filter(({ headers }) => headers["x-source"] === name);
        expect(delivered.map(({ body }) => body.toString())).toContain(row?.payload);
      });
      const topics = await database.query("SELECT topic FROM outbox WHERE topic = $1", [`${name}.${type}`]);
      expect(topics.length).toBeGreaterThan(0);
    },
  );

  test("OPTIONS, HEAD and GET are answered if a handshake needs them", async () => {
    const ask = (method: string, path: string, headers = {}) =>
      fetch(`http://127.0.0.1:${service.port}/inbox/${path}`, { method, headers }).then(({ status }) => status);
    expect(await ask("OPTIONS", "events", { "WebHook-Request-Origin": "grid.example" })).toBe(200);
    expect(await ask("OPTIONS", "events", { "WebHook-Request-Origin": "other.example" })).toBe(403);
    const named = (provider: string) => SOURCES.find(({ sender }) => sender.name === provider)?.name ?? "";
    expect(await ask("HEAD", named("intercom"))).toBe(200);
    expect(await ask("GET", named("meta"))).toBe(403);
    expect(await ask("GET", named("stripe"))).toBe(405);
    expect(await ask("POST", `${named("microsoft-graph")}?validationToken=x`)).toBe(200);
  });

  test("no secret is in the log", () => {
    const lines = service.process.lines.join("\n");
    for (const { next, old } of SOURCES) for (const { secret } of [next, old]) expect(lines).not.toContain(secret);
  });
});

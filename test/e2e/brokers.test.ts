import { expect, test } from "@jest/globals";
import { type ArrivedMessage, type BrokerEnd, sharedEnd } from "../support/brokerEnds/index.ts";
import { describeWith, START_TIMEOUT_MS } from "../support/brokers/index.ts";
import { type ConfigTree, useServices } from "../support/service.ts";

const KINDS = ["rabbitmq", "kafka", "nats"] as const;
const PLACES = ["http", ...KINDS] as const;
const KEYS = 5;
const PER_PAIR = 40;

describeWith(KINDS, "every kind of source to every kind of destination", () => {
  const services = useServices();

  test(
    "delivers each message once, with its body and headers, in order per key",
    async () => {
      const receiver = await services.receiver();
      const ends: BrokerEnd[] = [];
      services.defer(() => Promise.all(ends.map((end) => end[Symbol.asyncDispose]())));
      for (const kind of KINDS) ends.push(await sharedEnd(kind));
      const database = await services.database();
      const svc = await services.start({ database, config: configuration(receiver.url, ends) });

      const messages = Array.from({ length: PER_PAIR }, (_, n) => n).flatMap((n) =>
        PLACES.map((to) => ({ n, to, key: `key-${n % KEYS}`, headers: { "x-tenant": "blue", "x-to": to } })),
      );
      const sent = (from: string) =>
        messages.map(({ n, to, key, headers }) => ({
          key,
          headers,
          body: JSON.stringify({ id: `${to}-${n}`, n, key, from }),
        }));
      await Promise.all([
        ...ends.map((end) => end.send(sent(end.kind))),
        (async () => {
          for (const { body, headers } of sent("http")) expect((await svc.post(body, { headers })).status).toBe(202);
        })(),
      ]);

      const expected = PLACES.length * PER_PAIR;
      const delivered = new Map<string, readonly ArrivedMessage[]>(
        await Promise.all(
          ends.map(async (end) => [end.kind, await end.arrived((all) => all.length >= expected)] as const),
        ),
      );
      const requests = await receiver.received(expected);
      delivered.set(
        "http",
        requests.map(({ body, headers }) => ({ body: body.toString(), headers: textHeaders(headers), key: "" })),
      );

      for (const [to, arrived] of delivered) {
        for (const from of PLACES) {
          const ours = arrived.map((each) => ({ ...each, ...parsed(each.body) })).filter((each) => each.from === from);
          expect(ours.map(({ n }) => n).toSorted((a, b) => a - b)).toEqual(
            messages.filter((m) => m.to === to).map(({ n }) => n),
          );
          for (let key = 0; key < KEYS; key += 1) {
            const ofKey = ours.filter(({ n }) => n % KEYS === key).map(({ n }) => n);
            expect(ofKey).toEqual(ofKey.toSorted((a, b) => a - b));
          }
          for (const { headers, id } of ours) {
            expect(headers).toMatchObject({
              "x-tenant": "blue",
              "x-source": `from-${from}`,
              "x-idempotency-key": id,
              "x-static": "yes",
              "x-message-id": expect.stringMatching(/^[0-9a-f-]{36}$/),
              "x-correlation-id": expect.stringMatching(/^[0-9a-f-]{36}$/),
            });
          }
        }
      }
      const { verdict, components } = await svc.readiness();
      expect(verdict).toBe("healthy");
      for (const kind of KINDS) expect(components[`${kind}.from-${kind}`]).toBe("up");
      const left = await database.query("SELECT state, count(*)::int AS rows FROM outbox GROUP BY state");
      expect(left).toEqual([{ state: "sent", rows: PLACES.length * PLACES.length * PER_PAIR }]);
    },
    3 * START_TIMEOUT_MS,
  );
});

/** Sources `from-<kind>`, destinations `to-<kind>`; the header `x-to` decides the destination of a message. */
function configuration(receiverUrl: string, ends: readonly BrokerEnd[]): ConfigTree {
  const attributeHeaders = { eventType: "x-to" };
  const shared = { topic: "{{ source }}.{{ eventType }}" };
  const paths = { idempotencyKeyPath: ["$.event.id", "$.id"] };
  const brokerSources = ends.map(({ kind, source }) => [
    `from-${kind}`,
    { ...source, ...shared, ...paths, eventTypeFromHeader: true, attributeHeaders },
  ]);
  // An HTTP source knows no attribute headers: its event type is part of the body's id.
  const httpSource = {
    path: "/orders",
    idempotencyKeyPath: "$.id",
    aggregateIdPath: "$.key",
    eventTypePath: "$.id",
    ...shared,
  };
  return {
    sources: { "from-http": httpSource, ...Object.fromEntries(brokerSources) },
    destinations: {
      "to-http": { baseUrl: receiverUrl, headers: { "x-static": "yes" } },
      ...Object.fromEntries(
        ends.map(({ kind, destination }) => [
          `to-${kind}`,
          { ...destination, headers: { "x-static": "yes", "X-Tenant": "red" } },
        ]),
      ),
    },
    routes: PLACES.map((to) => ({ topicPattern: `*.${to}**`, destination: `to-${to}` })),
    outbox: { batchSize: 200, concurrency: 32 },
  };
}

function parsed(body: string) {
  return JSON.parse(body) as { readonly id: string; readonly n: number; readonly from: string };
}

function textHeaders(headers: Readonly<Record<string, unknown>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)]));
}

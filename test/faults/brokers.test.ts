import { describe, expect, test } from "@jest/globals";
import { type BrokerEnd, kafkaEnd, natsEnd, rabbitmqEnd } from "../support/brokerEnds/index.ts";
import {
  type BrokerKind,
  describeWith,
  type OwnServer,
  START_TIMEOUT_MS,
  startKafka,
  startNats,
  startRabbitmq,
} from "../support/brokers/index.ts";
import { eventually } from "../support/eventually.ts";
import { History } from "../support/history.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

/** Many beside what the retries of an outage claim and release, which grows with its length alone. */
const MESSAGES = 5000;
const KEYS = 100;
/** The broker goes away when this many messages have been delivered: the rest is in all stages of its way. */
const DELIVERED_BEFORE = 1000;

const BROKERS: Readonly<Record<BrokerKind, () => Promise<{ server: OwnServer; end: BrokerEnd }>>> = {
  async rabbitmq() {
    const server = await startRabbitmq();
    return { server, end: await rabbitmqEnd(server) };
  },
  async kafka() {
    const server = await startKafka();
    return { server, end: await kafkaEnd(server) };
  },
  async nats() {
    const server = await startNats();
    return { server, end: await natsEnd(server) };
  },
};

describe.each(["rabbitmq", "kafka", "nats"] as const)("%s", (kind) => {
  describeWith([kind], "restarted while messages come in from it and go out to it", () => {
    test(
      "loses nothing that was acknowledged and keeps the order of each key",
      async () => {
        const { server, end } = await BROKERS[kind]();
        services.defer(() => server[Symbol.asyncDispose]());
        const database = await services.database();
        const svc = await services.start({
          database,
          config: {
            sources: { in: end.source },
            destinations: { out: end.destination },
            routes: [{ topicPattern: "**", destination: "out" }],
            // A key whose delivery failed continues soon, and no row dies of the restart.
            outbox: { batchSize: 500, concurrency: 200, retryBaseDelayMs: 200, maxAttempts: 100 },
            inbox: { relay: { batchSize: 500 } },
          },
        });
        const history = new History();
        const messages = Array.from({ length: MESSAGES }, (_, n) => {
          const message = { id: `m-${n}`, key: `key-${n % KEYS}` };
          history.sent(message.id, message.key);
          return { key: message.key, body: JSON.stringify({ ...message, n }) };
        });

        const sending = end.send(messages);
        await eventually(async () => (await svc.metric("svc_outbox_messages_total")) >= DELIVERED_BEFORE, {
          timeoutMs: 30_000,
          label: "the first deliveries",
        });
        await server.stop();
        // What was in flight has failed by the time at which it is back.
        await eventually(async () => expect((await svc.readiness()).components[`${kind}.in`]).toBe("down"), {
          timeoutMs: 30_000,
        });
        await server.start();
        await sending;
        for (const { body } of messages) history.acknowledged((JSON.parse(body) as { id: string }).id);

        const unfinished = () =>
          database.query("SELECT state, count(*)::int AS rows FROM outbox WHERE state <> 'sent' GROUP BY state");
        const stored = async () => (await database.query("SELECT count(*)::int AS rows FROM inbox"))[0];
        await eventually(async () => expect(await stored()).toEqual({ rows: MESSAGES }), { timeoutMs: 60_000 });
        await eventually(async () => expect(await unfinished()).toEqual([]), { timeoutMs: 60_000 });
        // A failed delivery gives back claimed rows of its own key, and no others.
        const failed = await svc.metric('svc_outbox_destination_messages_total{destination="out",outcome="failed"}');
        const claimed = await svc.metric('svc_claim_rows_sum{component="poller"}');
        expect(claimed).toBeLessThanOrEqual(MESSAGES + failed * (MESSAGES / KEYS));
        // A group may be longer in joining again than the rest of the work takes.
        await eventually(async () => expect((await svc.readiness()).verdict).toBe("healthy"), { timeoutMs: 30_000 });

        const seen = new Set<string>();
        for (const { body } of await end.arrived((all) => {
          const latest = all.at(-1);
          if (latest !== undefined) seen.add((JSON.parse(latest.body) as { id: string }).id);
          return seen.size >= MESSAGES;
        })) {
          history.received((JSON.parse(body) as { id: string }).id);
        }
        // Deliveries that were in flight when the broker went away may have arrived, and come again.
        history.mayRepeat(history.repeated.map(({ id }) => id));
        expect(history.repeated.length).toBeLessThan(MESSAGES / 4);
        expect(history.violations()).toEqual([]);
      },
      3 * START_TIMEOUT_MS + 120_000,
    );
  });
});

import { expect, test } from "@jest/globals";
import { type BrokerEnd, sharedEnd } from "../support/brokerEnds/index.ts";
import { describeWith, START_TIMEOUT_MS } from "../support/brokers/index.ts";
import { eventually } from "../support/eventually.ts";
import { useServices } from "../support/service.ts";

const KINDS = ["rabbitmq", "kafka", "nats"] as const;

/** What no broker of its kind can publish; the topic of the row is a part of it. */
const DESTINATIONS = {
  rabbitmq: { routingKeyTemplate: "{{ payload.word }}" },
  kafka: { topic: "{{ payload.word }}" },
  nats: { subject: "{{ payload.word }}" },
} as const;
const REASONS = { rabbitmq: /AMQP allows 255/, kafka: /is not a topic name/, nats: /holds a blank/ } as const;

describeWith(KINDS, "a row whose address its broker can never take", () => {
  const services = useServices();

  test(
    "is dead after one attempt, with the reason",
    async () => {
      const ends: BrokerEnd[] = [];
      services.defer(() => Promise.all(ends.map((end) => end[Symbol.asyncDispose]())));
      for (const kind of KINDS) ends.push(await sharedEnd(kind));
      const database = await services.database();
      await services.start({
        database,
        config: {
          destinations: Object.fromEntries(
            ends.map(({ kind, destination }) => [kind, { ...destination, ...DESTINATIONS[kind] }]),
          ),
          routes: KINDS.map((kind) => ({ topicPattern: kind, destination: kind })),
        },
      });
      const payload = JSON.stringify({ word: `two words${"!".repeat(300)}` });
      for (const kind of KINDS) {
        await database.query("INSERT INTO outbox (topic, payload) VALUES ($1, $2)", [kind, payload]);
      }
      for (const kind of KINDS) {
        await eventually(async () => {
          const rows = await database.query("SELECT state, attempt, last_error FROM outbox WHERE topic = $1", [kind]);
          expect(rows).toEqual([{ state: "dead", attempt: 1, last_error: expect.stringMatching(REASONS[kind]) }]);
        });
      }
    },
    START_TIMEOUT_MS,
  );
});

import { createKafkaDestination } from "../../src/adapters/destinations/kafka/index.ts";
import { describeWith, unique } from "../support/brokers/index.ts";
import { makeTopic, ownSaslKafkaForBlock, readTopic, SASL_LOGIN, saslLogin } from "../support/kafkaClient.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { exerciseDestination } from "./destination.ts";
import { destinationEnds, WRONG_PASSWORD } from "./ends.ts";

failOnLeaks();

describeWith(["kafka"], "Kafka", () => {
  const { server, kafka } = ownSaslKafkaForBlock();

  exerciseDestination({
    name: "kafka",
    reconnectMs: 10_000,
    shortestTimeoutMs: 2000,
    messageIdHeader: "x-message-id",
    wrongPassword: WRONG_PASSWORD,
    oversizedBody: JSON.stringify("x".repeat(1_048_588)),
    nonAsciiHeaders: true,
    async start() {
      const topic = unique("orders");
      await makeTopic(kafka(), topic);
      const ends = await destinationEnds(server(), SASL_LOGIN.password, ({ port, password, timeoutMs }, tools) =>
        createKafkaDestination(
          {
            bootstrapServers: `127.0.0.1:${port}`,
            topic,
            timeoutMs,
            keyTemplate: "{{ key }}",
            ...saslLogin("SCRAM-SHA-256", password),
          },
          tools,
        ),
      );
      return {
        ...ends,
        address: (message) => ({ ...message, address: topic }),
        arrived: async (count) =>
          (await readTopic(kafka(), topic, count)).map(({ value, headers = {} }) => ({
            body: value ?? Buffer.alloc(0),
            headers: Object.fromEntries(
              Object.entries(headers).map(([name, text]) => [name.toLowerCase(), String(text)]),
            ),
          })),
      };
    },
  });
});

import { createKafkaSource } from "../../src/adapters/sources/kafka/index.ts";
import { describeWith, unique } from "../support/brokers/index.ts";
import { lagOf, makeTopic, ownSaslKafkaForBlock, SASL_LOGIN, saslLogin } from "../support/kafkaClient.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { sourceEnds } from "./ends.ts";
import { exerciseSource } from "./source.ts";

/** The broker's lower bound for a session is 6 s. */
const TIMES = { sessionMs: 6000, heartbeatMs: 500, rebalanceMs: 10_000, fetchWaitMs: 200 };

failOnLeaks();

describeWith(["kafka"], "Kafka", () => {
  const { server, kafka } = ownSaslKafkaForBlock();

  exerciseSource({
    name: "kafka",
    reconnectMs: 12_000,
    oneReaderAtATime: true,
    async start() {
      const topic = unique("orders");
      const groupId = unique("group");
      await makeTopic(kafka(), topic);
      const producer = kafka().producer({ allowAutoTopicCreation: false, retry: { retries: 1 } });
      const ends = await sourceEnds(server(), SASL_LOGIN.password, ({ port, password, batchSize }, tools) =>
        createKafkaSource(
          {
            bootstrapServers: `127.0.0.1:${port}`,
            topics: [topic],
            groupId,
            autoOffsetReset: "earliest",
            maxPollRecords: batchSize ?? 100,
            eventTypeFromHeader: false,
            ...saslLogin("SCRAM-SHA-512", password),
          },
          tools,
          TIMES,
        ),
      );
      return {
        ...ends,
        async send(messages) {
          await producer.connect();
          const records = messages.map(({ body, headers = {} }) => ({ value: body, headers }));
          await producer.send({ topic, messages: records });
        },
        unacknowledged: () => lagOf(kafka(), groupId, topic),
        async [Symbol.asyncDispose]() {
          await ends[Symbol.asyncDispose]();
          await producer.disconnect();
        },
      };
    },
  });
});

import { afterAll, beforeAll } from "@jest/globals";
import type { Kafka } from "kafkajs";
import { createKafkaSource } from "../../src/adapters/sources/kafka/index.ts";
import { Secret } from "../../src/model/secret.ts";
import type { Source } from "../../src/ports/source.ts";
import { startBlackHole } from "../support/blackHole.ts";
import {
  describeWith,
  type KafkaAddress,
  type OwnServer,
  START_TIMEOUT_MS,
  startKafka,
  unique,
} from "../support/brokers/index.ts";
import { brokerTools, kafkaClient, lagOf, makeTopic, SASL_LOGIN } from "../support/kafkaClient.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";
import { exerciseSource } from "./source.ts";

const WRONG_PASSWORD = "not-the-svc-secret";
/** The broker's lower bound for a session is 6 s. */
const TIMES = { sessionMs: 6000, heartbeatMs: 500, rebalanceMs: 10_000, fetchWaitMs: 200 };

failOnLeaks();

describeWith(["kafka"], "a log broker", () => {
  let server: OwnServer & KafkaAddress;
  let kafka: Kafka;
  beforeAll(async () => {
    server = await startKafka({ sasl: true });
    kafka = kafkaClient(server, { mechanism: "plain", ...SASL_LOGIN });
  }, START_TIMEOUT_MS);
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
  });

  exerciseSource({
    name: "kafka",
    reconnectMs: 12_000,
    oneReaderAtATime: true,
    async start() {
      const topic = unique("orders");
      const groupId = unique("group");
      await makeTopic(kafka, topic);
      const blackHole = await startBlackHole();
      const ports = { broker: server.port, unanswered: blackHole.port, unreachable: await freePort() };
      const sources: Source[] = [];
      const producer = kafka.producer({ allowAutoTopicCreation: false, retry: { retries: 1 } });
      return {
        create(intake, { batchSize = 100, at = "broker", wrongCredentials = false, log } = {}) {
          const source = createKafkaSource(
            {
              bootstrapServers: `127.0.0.1:${ports[at]}`,
              topics: [topic],
              groupId,
              autoOffsetReset: "earliest",
              maxPollRecords: batchSize,
              eventTypeFromHeader: false,
              securityProtocol: "SASL_PLAINTEXT",
              saslMechanism: "SCRAM-SHA-512",
              saslUsername: SASL_LOGIN.username,
              saslPassword: new Secret(wrongCredentials ? WRONG_PASSWORD : SASL_LOGIN.password),
            },
            { ...brokerTools().tools, ...(log !== undefined && { log }), name: "orders", intake },
            TIMES,
          );
          sources.push(source);
          return source;
        },
        async send(messages) {
          await producer.connect();
          const records = messages.map(({ body, headers = {} }) => ({ value: body, headers }));
          await producer.send({ topic, messages: records });
        },
        stopBroker: () => server.stop(),
        startBroker: () => server.start(),
        wrongPassword: WRONG_PASSWORD,
        unacknowledged: () => lagOf(kafka, groupId, topic),
        async [Symbol.asyncDispose]() {
          await Promise.all(sources.map((source) => source.stop(AbortSignal.timeout(2000))));
          await producer.disconnect();
          await blackHole.close();
        },
      };
    },
  });
});

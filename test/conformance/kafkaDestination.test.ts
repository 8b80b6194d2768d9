import { afterAll, beforeAll } from "@jest/globals";
import type { Kafka } from "kafkajs";
import { createKafkaDestination } from "../../src/adapters/destinations/kafka/index.ts";
import { Secret } from "../../src/model/secret.ts";
import type { Destination } from "../../src/ports/destination.ts";
import { startBlackHole } from "../support/blackHole.ts";
import {
  describeWith,
  type KafkaAddress,
  type OwnServer,
  START_TIMEOUT_MS,
  startKafka,
  unique,
} from "../support/brokers/index.ts";
import { brokerTools, kafkaClient, makeTopic, readTopic, SASL_LOGIN } from "../support/kafkaClient.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";
import { exerciseDestination } from "./destination.ts";

const WRONG_PASSWORD = "not-the-svc-secret";

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
      await makeTopic(kafka, topic);
      const blackHole = await startBlackHole();
      const nobody = await freePort();
      const destinations: Destination[] = [];
      let isStopped = false;
      const open = (port: number, timeoutMs: number, password = SASL_LOGIN.password): Destination => {
        const destination = createKafkaDestination(
          {
            bootstrapServers: `127.0.0.1:${port}`,
            topic,
            timeoutMs,
            keyTemplate: "{{ key }}",
            securityProtocol: "SASL_PLAINTEXT",
            saslMechanism: "SCRAM-SHA-256",
            saslUsername: SASL_LOGIN.username,
            saslPassword: new Secret(password),
          },
          brokerTools().tools,
        );
        destinations.push(destination);
        return destination;
      };
      return {
        create: () => open(server.port, 30_000),
        createUnanswered: (timeoutMs) => open(blackHole.port, timeoutMs),
        createUnreachable: (timeoutMs) => open(nobody, timeoutMs),
        createWithWrongCredentials: () => open(server.port, 30_000, WRONG_PASSWORD),
        address: (message) => ({ ...message, address: topic }),
        arrived: async (count) =>
          (await readTopic(kafka, topic, count)).map(({ value, headers = {} }) => ({
            body: value ?? Buffer.alloc(0),
            headers: Object.fromEntries(
              Object.entries(headers).map(([name, text]) => [name.toLowerCase(), String(text)]),
            ),
          })),
        async stopReceiver() {
          await server.stop();
          isStopped = true;
        },
        async startReceiver() {
          await server.start();
          isStopped = false;
        },
        async [Symbol.asyncDispose]() {
          await Promise.all(destinations.map((destination) => destination.close()));
          await blackHole.close();
          if (isStopped) await server.start();
        },
      };
    },
  });
});

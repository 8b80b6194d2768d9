import { afterAll, beforeAll } from "@jest/globals";
import { type ConfirmChannel, connect } from "amqplib";
import { createRabbitmqSource } from "../../src/adapters/sources/rabbitmq/index.ts";
import type { Source } from "../../src/ports/source.ts";
import { startBlackHole } from "../support/blackHole.ts";
import {
  describeWith,
  type OwnServer,
  type RabbitmqAddress,
  START_TIMEOUT_MS,
  startRabbitmq,
  unique,
} from "../support/brokers/index.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";
import { recordingLog } from "../support/recorders.ts";
import { exerciseSource } from "./source.ts";

const WRONG_PASSWORD = "not-the-password-of-svc";

describeWith(["rabbitmq"], "RabbitMQ", () => {
  let server: OwnServer & RabbitmqAddress;
  beforeAll(async () => {
    server = await startRabbitmq();
  }, START_TIMEOUT_MS);
  afterAll(async () => {
    await server?.[Symbol.asyncDispose]();
  });
  failOnLeaks();

  exerciseSource({
    name: "rabbitmq",
    // The longest wait of the backoff, and the connection.
    reconnectMs: 8000,
    async start() {
      const queueName = unique("orders");
      await withChannel(server.url, (channel) => channel.assertQueue(queueName, { durable: true }));
      const blackHole = await startBlackHole();
      const unusedPort = await freePort();
      const sources: Source[] = [];
      const urls = {
        broker: server.url,
        unanswered: `amqp://127.0.0.1:${blackHole.port}`,
        unreachable: `amqp://127.0.0.1:${unusedPort}`,
      };
      return {
        create(intake, { batchSize = 10, at = "broker", wrongCredentials = false, log = recordingLog().log } = {}) {
          const connectionUrl = wrongCredentials ? urls[at].replace(server.password, WRONG_PASSWORD) : urls[at];
          const source = createRabbitmqSource(
            { connectionUrl, queueName, prefetchCount: batchSize, declareQueue: false, eventTypeFromHeader: false },
            {
              name: "orders",
              intake,
              log,
              clock: { now: () => Date.now(), monotonic: () => performance.now() },
              random: Math.random,
            },
          );
          sources.push(source);
          return source;
        },
        send: (messages) =>
          withChannel(server.url, async (channel) => {
            for (const { body, headers } of messages)
              channel.sendToQueue(queueName, Buffer.from(body), { persistent: true, headers });
            await channel.waitForConfirms();
          }),
        stopBroker: () => server.stop(),
        startBroker: () => server.start(),
        wrongPassword: WRONG_PASSWORD,
        async [Symbol.asyncDispose]() {
          const cutoff = AbortSignal.timeout(5000);
          await Promise.all(sources.map((source) => source.stop(cutoff)));
          await blackHole.close();
        },
      };
    },
  });
});

/** Does something on a channel with confirms, on a connection of its own. */
async function withChannel<T>(url: string, work: (channel: ConfirmChannel) => Promise<T>): Promise<void> {
  const connection = await connect(url);
  // Its end is seen where it matters: the work rejects.
  connection.on("error", () => {});
  try {
    const channel = await connection.createConfirmChannel();
    channel.on("error", () => {});
    await work(channel);
  } finally {
    await connection.close().catch(() => {});
  }
}

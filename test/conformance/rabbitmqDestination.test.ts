import { afterAll, beforeAll } from "@jest/globals";
import { connect } from "amqplib";
import { createRabbitmqDestination } from "../../src/adapters/destinations/rabbitmq/index.ts";
import type { Destination } from "../../src/ports/destination.ts";
import { startBlackHole } from "../support/blackHole.ts";
import {
  describeWith,
  type OwnServer,
  type RabbitmqAddress,
  START_TIMEOUT_MS,
  startRabbitmq,
  unique,
} from "../support/brokers/index.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";
import { recordingLog } from "../support/recorders.ts";
import { type ArrivedMessage, exerciseDestination } from "./destination.ts";

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

  exerciseDestination({
    name: "rabbitmq",
    // The first wait of the backoff, and the connection.
    reconnectMs: 5000,
    shortestTimeoutMs: 50,
    messageIdHeader: "x-message-id",
    wrongPassword: WRONG_PASSWORD,
    // RabbitMQ takes 128 MiB unless it is told otherwise.
    oversizedBody: JSON.stringify("x".repeat(128 * 1024 * 1024)),
    nonAsciiHeaders: true,
    async start() {
      let isStopped = false;
      const arrived: ArrivedMessage[] = [];
      const exchange = unique("orders");
      const queue = unique("orders");
      const blackHole = await startBlackHole();
      const unusedPort = await freePort();
      const destinations: Destination[] = [];
      const open = (url: string, timeoutMs: number): Destination => {
        const destination = createRabbitmqDestination(
          { url, exchange, exchangeType: "topic", routingKeyTemplate: "{{ topic }}", deliveryMode: "persistent" },
          {
            log: recordingLog().log,
            clock: { now: () => Date.now(), monotonic: () => performance.now() },
            random: Math.random,
            timeoutMs,
          },
        );
        destinations.push(destination);
        return destination;
      };
      await bind(server.url, exchange, queue);
      return {
        create: () => open(server.url, 30_000),
        createUnreachable: (timeoutMs) => open(`amqp://127.0.0.1:${unusedPort}`, timeoutMs),
        createWithWrongCredentials: () => open(`amqp://svc:${WRONG_PASSWORD}@${server.host}:${server.port}/`, 30_000),
        createUnanswered: (timeoutMs) => open(`amqp://127.0.0.1:${blackHole.port}`, timeoutMs),
        address: (message) => ({ ...message, address: exchange, routingKey: message.topic }),
        arrived: async (count) => {
          await read(server.url, queue, arrived, count);
          return arrived.slice(0, count);
        },
        stopReceiver: () => {
          isStopped = true;
          return server.stop();
        },
        startReceiver: async () => {
          await server.start();
          isStopped = false;
        },
        async [Symbol.asyncDispose]() {
          if (isStopped) await server.start();
          await Promise.all(destinations.map((destination) => destination.close()));
          await blackHole.close();
        },
      };
    },
  });
});

async function bind(url: string, exchange: string, queue: string): Promise<void> {
  const connection = await connect(url);
  try {
    const channel = await connection.createChannel();
    await channel.assertExchange(exchange, "topic", { durable: true });
    await channel.assertQueue(queue, { durable: true });
    await channel.bindQueue(queue, exchange, "#");
  } finally {
    await connection.close();
  }
}

/** Takes messages from a queue into a list until it holds as many as asked for. */
async function read(url: string, queue: string, arrived: ArrivedMessage[], count: number): Promise<void> {
  const connection = await connect(url);
  try {
    const channel = await connection.createChannel();
    await eventually(async () => {
      while (arrived.length < count) {
        const message = await channel.get(queue, { noAck: true });
        if (message === false) return false;
        const headers = Object.entries({ ...message.properties.headers });
        arrived.push({
          body: message.content,
          headers: Object.fromEntries(headers.map(([name, value]) => [name.toLowerCase(), String(value)])),
        });
      }
      return true;
    });
  } finally {
    await connection.close();
  }
}

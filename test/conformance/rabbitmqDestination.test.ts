import { createRabbitmqDestination } from "../../src/adapters/destinations/rabbitmq/index.ts";
import { describeWith, ownServerForBlock, startRabbitmq, unique } from "../support/brokers/index.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { withChannel } from "../support/rabbitmqClient.ts";
import { type ArrivedMessage, exerciseDestination } from "./destination.ts";
import { destinationEnds, WRONG_PASSWORD } from "./ends.ts";

describeWith(["rabbitmq"], "RabbitMQ", () => {
  const server = ownServerForBlock(startRabbitmq);
  failOnLeaks();

  exerciseDestination({
    name: "rabbitmq",
    // The first wait of the backoff, and the connection.
    reconnectMs: 5000,
    shortestTimeoutMs: 50,
    messageIdHeader: "x-message-id",
    wrongPassword: WRONG_PASSWORD,
    // RabbitMQ takes 128 MiB by default.
    oversizedBody: JSON.stringify("x".repeat(128 * 1024 * 1024)),
    nonAsciiHeaders: true,
    async start() {
      const { host, user, password, url } = server();
      const arrived: ArrivedMessage[] = [];
      const exchange = unique("orders");
      const queue = unique("orders");
      await withChannel(url, async (channel) => {
        await channel.assertExchange(exchange, "topic", { durable: true });
        await channel.assertQueue(queue, { durable: true });
        await channel.bindQueue(queue, exchange, "#");
      });
      const ends = await destinationEnds(server(), password, (target, tools) =>
        createRabbitmqDestination(
          {
            url: `amqp://${user}:${target.password}@${host}:${target.port}`,
            exchange,
            exchangeType: "topic",
            declareExchange: true,
            routingKeyTemplate: "{{ topic }}",
            deliveryMode: "persistent",
          },
          { ...tools, timeoutMs: target.timeoutMs },
        ),
      );
      return {
        ...ends,
        address: (message) => ({ ...message, address: exchange, routingKey: message.topic }),
        arrived: async (count) => {
          await read(url, queue, arrived, count);
          return arrived.slice(0, count);
        },
      };
    },
  });
});

/** Takes messages from a queue into a list until it holds as many as asked for. */
async function read(url: string, queue: string, arrived: ArrivedMessage[], count: number): Promise<void> {
  await withChannel(url, (channel) =>
    eventually(async () => {
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
    }),
  );
}

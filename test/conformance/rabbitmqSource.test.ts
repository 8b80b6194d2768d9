import { createRabbitmqSource } from "../../src/adapters/sources/rabbitmq/index.ts";
import { describeWith, ownServerForBlock, startRabbitmq, unique } from "../support/brokers/index.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { withChannel } from "../support/rabbitmqClient.ts";
import { sourceEnds } from "./ends.ts";
import { exerciseSource } from "./source.ts";

describeWith(["rabbitmq"], "RabbitMQ", () => {
  const server = ownServerForBlock(startRabbitmq);
  failOnLeaks();

  exerciseSource({
    name: "rabbitmq",
    // The longest wait of the backoff, and the connection.
    reconnectMs: 8000,
    async start() {
      const { host, user, password, url } = server();
      const queueName = unique("orders");
      await withChannel(url, (channel) => channel.assertQueue(queueName, { durable: true }));
      const ends = await sourceEnds(server(), password, (target, tools) =>
        createRabbitmqSource(
          {
            connectionUrl: `amqp://${user}:${target.password}@${host}:${target.port}`,
            queueName,
            prefetchCount: target.batchSize ?? 10,
            declareQueue: false,
            eventTypeFromHeader: false,
          },
          tools,
        ),
      );
      return {
        ...ends,
        send: (messages) =>
          withChannel(url, async (channel) => {
            for (const { body, headers } of messages)
              channel.sendToQueue(queueName, Buffer.from(body), { persistent: true, headers });
            await channel.waitForConfirms();
          }),
      };
    },
  });
});

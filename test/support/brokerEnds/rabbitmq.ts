import { type ChannelModel, type ConsumeMessage, connect } from "amqplib";
import { type RabbitmqAddress, unique } from "../brokers/servers.ts";
import { type ArrivedMessage, type BrokerEnd, inChunks, type SentMessage, untilItPasses } from "./types.ts";

/** A queue for a source, and an exchange with a queue behind it for a destination. */
export async function rabbitmqEnd(server: RabbitmqAddress): Promise<BrokerEnd> {
  const [incoming, exchange, outgoing] = [unique("in"), unique("exchange"), unique("out")];
  await connected(server, async (connection) => {
    const channel = await connection.createChannel();
    await channel.assertQueue(incoming, { durable: true });
    await channel.assertExchange(exchange, "topic", { durable: true });
    await channel.assertQueue(outgoing, { durable: true });
    await channel.bindQueue(outgoing, exchange, "#");
  });
  const sendChunk = (chunk: readonly SentMessage[]) =>
    connected(server, async (connection) => {
      const channel = await connection.createConfirmChannel();
      for (const { body, headers } of chunk) {
        channel.sendToQueue(incoming, Buffer.from(body), { persistent: true, headers: { ...headers } });
      }
      await channel.waitForConfirms();
    });
  const sourceOf = (queueName: string) => ({
    queueName,
    connectionUrl: server.url,
    prefetchCount: 500,
    aggregateIdPath: "$.key",
  });
  return {
    kind: "rabbitmq",
    source: sourceOf(incoming),
    returning: sourceOf(outgoing),
    destination: { url: server.url, exchange },
    async send(messages) {
      for (const chunk of inChunks(messages)) await untilItPasses(() => sendChunk(chunk));
    },
    async arrived(enough) {
      const all: ArrivedMessage[] = [];
      await connected(server, async (connection) => {
        const channel = await connection.createChannel();
        await new Promise<void>((resolve, reject) => {
          connection.on("close", () => reject(new Error("the connection was closed")));
          const onMessage = (message: ConsumeMessage | null) => {
            if (message !== null) all.push(arrivedMessage(message));
            if (enough(all)) resolve();
          };
          // Nothing is acknowledged: it lies there for the next reader, too.
          channel.consume(outgoing, onMessage).catch(reject);
        });
      });
      return all;
    },
    [Symbol.asyncDispose]: () =>
      connected(server, async (connection) => {
        const channel = await connection.createChannel();
        for (const queue of [incoming, outgoing]) await channel.deleteQueue(queue);
        await channel.deleteExchange(exchange);
      }),
  };
}

async function connected(server: RabbitmqAddress, work: (connection: ChannelModel) => Promise<void>): Promise<void> {
  const connection = await connect(server.url, { timeout: 5000 });
  // What breaks makes the work under way reject.
  connection.on("error", () => {});
  try {
    await work(connection);
  } finally {
    await connection.close().catch(() => {});
  }
}

function arrivedMessage({ content, properties, fields }: ConsumeMessage): ArrivedMessage {
  const headers = Object.entries(properties.headers ?? {}).map(([name, value]) => [name.toLowerCase(), String(value)]);
  return { body: content.toString("utf8"), headers: Object.fromEntries(headers), key: fields.routingKey };
}

import { connect, type JsMsg, type NatsConnection, headers as natsHeaders } from "nats";
import { type NatsAddress, unique } from "../brokers/servers.ts";
import { type ArrivedMessage, type BrokerEnd, inChunks, type SentMessage, untilItPasses } from "./types.ts";

/** A stream for a source and one for a destination, on disk. */
export async function natsEnd(server: NatsAddress): Promise<BrokerEnd> {
  const [incoming, outgoing] = [unique("in"), unique("out")];
  await connected(server, async (connection) => {
    const manager = await connection.jetstreamManager();
    for (const stream of [incoming, outgoing]) await manager.streams.add({ name: stream, subjects: [`${stream}.>`] });
  });
  const sendChunk = (chunk: readonly SentMessage[]) =>
    connected(server, async (connection) => {
      const stream = connection.jetstream();
      await Promise.all(
        chunk.map(({ key, body, headers }) => {
          const all = natsHeaders();
          for (const [name, value] of Object.entries(headers ?? {})) all.set(name, value);
          return stream.publish(`${incoming}.${key}`, body, { headers: all });
        }),
      );
    });
  const sourceOf = (stream: string) => ({
    servers: server.url,
    stream,
    durable: "svc",
    batchSize: 500,
    aggregateIdPath: "$.key",
  });
  return {
    kind: "nats",
    source: sourceOf(incoming),
    returning: sourceOf(outgoing),
    destination: { servers: server.url, subject: `${outgoing}.{{ topic }}` },
    async send(messages) {
      for (const chunk of inChunks(messages)) await untilItPasses(() => sendChunk(chunk));
    },
    async arrived(enough) {
      const all: ArrivedMessage[] = [];
      await connected(server, async (connection) => {
        const consumer = await connection.jetstream().consumers.get(outgoing);
        const messages = await consumer.consume();
        for await (const message of messages) {
          all.push(arrivedMessage(message));
          if (enough(all)) break;
        }
        await messages.close();
      });
      return all;
    },
    [Symbol.asyncDispose]: () =>
      connected(server, async (connection) => {
        const manager = await connection.jetstreamManager();
        for (const stream of [incoming, outgoing]) await manager.streams.delete(stream);
      }),
  };
}

async function connected(server: NatsAddress, work: (connection: NatsConnection) => Promise<void>): Promise<void> {
  const connection = await connect({ servers: server.url, reconnect: false, timeout: 5000 });
  try {
    await work(connection);
  } finally {
    await connection.close();
  }
}

function arrivedMessage(message: JsMsg): ArrivedMessage {
  const headers: Record<string, string> = {};
  for (const [name, values] of message.headers ?? []) headers[name.toLowerCase()] = values.join(", ");
  return { body: message.string(), headers, key: message.subject };
}

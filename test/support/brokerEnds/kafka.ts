import { type IHeaders, Kafka, type KafkaMessage, logLevel, Partitioners } from "kafkajs";
import { createTopics } from "../brokers/kafkaTools.ts";
import { type KafkaAddress, unique } from "../brokers/servers.ts";
import { type ArrivedMessage, type BrokerEnd, inChunks, untilItPasses } from "./types.ts";

const PARTITIONS = 4;

/** A topic for a source and one for a destination, of four partitions each. */
export async function kafkaEnd(server: KafkaAddress): Promise<BrokerEnd> {
  const kafka = new Kafka({
    brokers: [server.bootstrapServers],
    logLevel: logLevel.NOTHING,
    retry: { retries: 1, initialRetryTime: 50 },
  });
  const [incoming, outgoing] = [unique("in"), unique("out")];
  const admin = kafka.admin();
  await admin.connect();
  await createTopics(
    admin,
    [incoming, outgoing].map((topic) => ({ topic, numPartitions: PARTITIONS })),
  );
  await admin.disconnect();
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  let isConnected = false;
  const sourceOf = (topic: string) => ({
    bootstrapServers: server.bootstrapServers,
    topics: [topic],
    groupId: unique("group"),
    aggregateIdPath: "$.key",
    maxPollRecords: 500,
  });
  return {
    kind: "kafka",
    source: sourceOf(incoming),
    returning: { ...sourceOf(outgoing), autoOffsetReset: "earliest" },
    destination: { bootstrapServers: server.bootstrapServers, topic: outgoing },
    async send(messages) {
      for (const chunk of inChunks(messages)) {
        await untilItPasses(async () => {
          if (!isConnected) await producer.connect();
          isConnected = true;
          const records = chunk.map(({ key, body, headers }) => ({ key, value: body, headers: { ...headers } }));
          await producer.send({ topic: incoming, acks: -1, messages: records });
        });
      }
    },
    async arrived(enough) {
      const all: ArrivedMessage[] = [];
      const consumer = kafka.consumer({ groupId: unique("reader") });
      await consumer.connect();
      try {
        await consumer.subscribe({ topics: [outgoing], fromBeginning: true });
        await new Promise<void>((resolve, reject) => {
          const eachMessage = async ({ message }: { readonly message: KafkaMessage }) => {
            all.push(arrivedMessage(message));
            if (enough(all)) resolve();
          };
          consumer.run({ eachMessage }).catch(reject);
        });
      } finally {
        await consumer.disconnect();
      }
      return all;
    },
    [Symbol.asyncDispose]: async () => {
      if (isConnected) await producer.disconnect();
    },
  };
}

function arrivedMessage({ key, value, headers }: KafkaMessage): ArrivedMessage {
  return { body: value?.toString("utf8") ?? "", headers: textHeaders(headers ?? {}), key: key?.toString("utf8") ?? "" };
}

function textHeaders(headers: IHeaders): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value)]));
}

import type { Consumer } from "kafkajs";
import type { KafkaClient } from "../../brokers/kafka/client.ts";

/** Partitions by topic. */
export type Assignment = Readonly<Record<string, readonly number[]>>;

/**
 * Commits the present end of each partition for which a group has no offset yet, so that `latest` is decided once: a group that is only kept in
 * memory would begin at the end again after the next fault, past what came meanwhile.
 *
 * @param client ended afterwards
 */
export async function commitEnds(
  client: KafkaClient,
  consumer: Consumer,
  groupId: string,
  assignment: Assignment,
): Promise<void> {
  const admin = client.kafka.admin();
  try {
    await admin.connect();
    const committed = await admin.fetchOffsets({ groupId, topics: Object.keys(assignment) });
    for (const { topic, partitions } of committed) {
      const isNew = (partition: number) =>
        assignment[topic]?.includes(partition) === true &&
        partitions.some((each) => each.partition === partition && Number(each.offset) < 0);
      if (!partitions.some(({ partition }) => isNew(partition))) continue;
      const ends = (await admin.fetchTopicOffsets(topic)).filter(({ partition }) => isNew(partition));
      await consumer.commitOffsets(ends.map(({ partition, high }) => ({ topic, partition, offset: high })));
    }
    await admin.disconnect();
  } finally {
    client.sockets.cut();
  }
}

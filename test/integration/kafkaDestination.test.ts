import { afterEach, beforeAll, describe, expect, test } from "@jest/globals";
import { createKafkaDestination } from "../../src/adapters/destinations/kafka/index.ts";
import type { KafkaDestinationConfig } from "../../src/adapters/destinations/kafka/kind.ts";
import type { PublishError } from "../../src/model/errors.ts";
import type { Destination, OutboundMessage } from "../../src/ports/destination.ts";
import { message } from "../conformance/destination.ts";
import { startBlackHole } from "../support/blackHole.ts";
import { describeWith, unique } from "../support/brokers/index.ts";
import { brokerTools } from "../support/brokerTools.ts";
import { eventually } from "../support/eventually.ts";
import { makeTopic, ownSaslKafkaForBlock, readTopic, saslLogin, sharedKafkaForBlock } from "../support/kafkaClient.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { LogLine } from "../support/recorders.ts";

const never = new AbortController().signal;
const destinations: Destination[] = [];

afterEach(async () => {
  await Promise.all(destinations.splice(0).map((destination) => destination.close()));
});
failOnLeaks();

function open(bootstrapServers: string, overrides: Partial<KafkaDestinationConfig> = {}) {
  const { tools, lines } = brokerTools();
  const config = {
    topic: "{{ topic }}",
    keyTemplate: "{{ key }}",
    securityProtocol: "PLAINTEXT",
    timeoutMs: 10_000,
  } as const;
  const destination = createKafkaDestination({ ...config, ...overrides, bootstrapServers }, tools);
  destinations.push(destination);
  const publish = (overrides: Partial<OutboundMessage>, signal: AbortSignal = never) =>
    destination.publish(message(overrides), signal);
  return { destination, publish, lines };
}

/** The error of a publish that has to fail. */
async function failureOf(published: Promise<void>): Promise<PublishError> {
  const failure = await published.then(
    () => undefined,
    (error: PublishError) => error,
  );
  if (failure === undefined) throw new Error("the publish did not fail");
  return failure;
}

/** How often a producer was connected, by what the client says. */
const connections = (lines: readonly LogLine[]) =>
  lines.filter(({ fields }) => String(fields.detail).startsWith("Limiting retries")).length;

describeWith(["kafka"], "a Kafka destination", () => {
  const { server, kafka } = sharedKafkaForBlock();
  const makeOwnTopic = async (partitions = 1, configuration = {}) => {
    const topic = unique("topic");
    await makeTopic(kafka(), topic, partitions, configuration);
    return topic;
  };

  test("sends what is ready together in one batch", async () => {
    const topic = await makeOwnTopic();
    const { publish } = open(server().bootstrapServers);
    await publish({ address: topic });
    await Promise.all(Array.from({ length: 50 }, () => publish({ address: topic })));
    const records = await readTopic(kafka(), topic, 51);
    // Records of one batch share its first offset.
    const batches = records.map((record) => (record as { batchContext?: { firstOffset: string } }).batchContext);
    expect(new Set(batches.map((batch) => batch?.firstOffset)).size).toBeLessThanOrEqual(3);
  });

  test("puts a key on the partition on which Java's client puts it", async () => {
    const topic = await makeOwnTopic(16);
    const { publish } = open(server().bootstrapServers);
    // toPositive(murmur2(key)) % 16, by org.apache.kafka.common.utils.Utils.
    await publish({ address: topic, routingKey: "21" });
    const [record] = await readTopic(kafka(), topic, 1);
    expect(record?.partition).toBe((-973932308 & 0x7fffffff) % 16);
  });

  test("puts a key on one partition again, whichever replica sends it, 30 s after partitions were added", async () => {
    const topic = await makeOwnTopic(1);
    const [first, second] = [open(server().bootstrapServers), open(server().bootstrapServers)];
    const inTurn = (body: string) =>
      first
        .publish({ address: topic, routingKey: "21", body })
        .then(() => second.publish({ address: topic, routingKey: "21", body }));
    await first.publish({ address: topic, routingKey: "21", body: "before" });
    const admin = kafka().admin();
    await admin.connect();
    await admin.createPartitions({ topicPartitions: [{ topic, count: 16 }] }).finally(() => admin.disconnect());
    const since = performance.now();
    await eventually(() => performance.now() - since > 31_000, { timeoutMs: 40_000 });
    for (let n = 0; n < 10; n++) await inTurn("after");
    const records = await readTopic(kafka(), topic, 21);
    const after = records.filter(({ value }) => String(value) === "after");
    expect([...new Set(after.map(({ partition }) => partition))]).toEqual([(-973932308 & 0x7fffffff) % 16]);
  }, 90_000);

  test.each([
    [null, null],
    ["", null],
    ["Zürich", "Zürich"],
  ])("sends the key %j as %j", async (routingKey, expected) => {
    const topic = await makeOwnTopic();
    await open(server().bootstrapServers).publish({ address: topic, routingKey });
    const [record] = await readTopic(kafka(), topic, 1);
    expect(record?.key?.toString() ?? null).toBe(expected);
  });

  test("fails for a topic that does not exist, says what to do, and holds up nobody else", async () => {
    const topic = await makeOwnTopic();
    const missing = unique("missing");
    const { publish, lines } = open(server().bootstrapServers);
    await publish({ address: topic });
    const outcomes = await Promise.allSettled(
      Array.from({ length: 20 }, (_, n) => publish({ address: n % 2 === 0 ? topic : missing })),
    );
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(10);
    const failure = await failureOf(publish({ address: missing }));
    expect(failure.code).toBe("topic_missing");
    expect(failure.message).toContain(`"${missing}"`);
    expect(failure.message).toContain("create the topic");
    expect(connections(lines)).toBe(1);
    await makeTopic(kafka(), missing);
    await publish({ address: missing });
  });

  test("continues with the others when a topic is deleted that it has published to", async () => {
    const [kept, deleted] = [await makeOwnTopic(), await makeOwnTopic()];
    const { publish } = open(server().bootstrapServers);
    await Promise.all([publish({ address: kept }), publish({ address: deleted })]);
    const admin = kafka().admin();
    await admin.connect();
    await admin.deleteTopics({ topics: [deleted] });
    await admin.disconnect();
    await eventually(async () => {
      const failed = failureOf(publish({ address: deleted }));
      await publish({ address: kept });
      expect((await failed).code).toBe("topic_missing");
    });
    await publish({ address: kept });
  });

  test.each([
    ["an invalid name", "not a topic", { code: "topic_invalid", isPermanent: true }],
    ["no name", "", { code: "no_topic", isPermanent: false }],
    ["the name of a folder", "..", { code: "topic_invalid", isPermanent: true }],
  ])("fails for %s and publishes the rest", async (_what, address, expected) => {
    const topic = await makeOwnTopic();
    const { publish } = open(server().bootstrapServers);
    const failed = failureOf(publish({ address }));
    await publish({ address: topic });
    expect(await failed).toMatchObject(expected);
  });

  test("fails only the one message of many that its topic finds too large", async () => {
    const topic = await makeOwnTopic(1, { "max.message.bytes": 20_000 });
    const { publish } = open(server().bootstrapServers);
    const bodies = Array.from({ length: 60 }, (_, n) => JSON.stringify(`${n} ${"x".repeat(n === 31 ? 30_000 : 2000)}`));
    const outcomes = await Promise.allSettled(bodies.map((body) => publish({ address: topic, body })));
    const failed = outcomes.flatMap((outcome, n) => (outcome.status === "rejected" ? [n] : []));
    expect(failed).toEqual([31]);
    expect((await failureOf(publish({ address: topic, body: bodies[31] ?? "" }))).code).toBe("message_too_large");
    const stored = (await readTopic(kafka(), topic, 59)).map(({ value }) => String(value));
    expect(new Set(stored)).toEqual(new Set(bodies.filter((_, n) => n !== 31)));
  });

  test("fails only the messages without key when their topic is compacted and takes none", async () => {
    const topic = await makeOwnTopic(1, { "cleanup.policy": "compact" });
    const { publish } = open(server().bootstrapServers);
    const outcomes = await Promise.allSettled(
      Array.from({ length: 10 }, (_, n) => publish({ address: topic, routingKey: n === 4 ? null : `k${n}` })),
    );
    expect(outcomes.map(({ status }) => status === "rejected")).toEqual(Array.from({ length: 10 }, (_, n) => n === 4));
    const [refused] = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason] : []));
    expect(refused.code).toBe("message_refused");
  });

  test("asks the next of its servers when one does not answer", async () => {
    const topic = await makeOwnTopic();
    const blackHole = await startBlackHole();
    try {
      const servers = `127.0.0.1:${blackHole.port}, ${server().bootstrapServers}`;
      const { publish } = open(servers, { timeoutMs: 2000 });
      await eventually(() => publish({ address: topic }), { timeoutMs: 30_000 });
    } finally {
      await blackHole.close();
    }
  });
});

describeWith(["kafka"], "a Kafka destination that logs in", () => {
  const { server, kafka } = ownSaslKafkaForBlock();
  const topic = unique("topic");
  beforeAll(() => makeTopic(kafka(), topic));

  describe.each(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] as const)("by %s", (mechanism) => {
    test("publishes", async () => {
      await open(server().bootstrapServers, saslLogin(mechanism)).publish({ address: topic });
    });

    test("says so when the password is wrong, and shows it nowhere", async () => {
      const { publish, lines } = open(server().bootstrapServers, saslLogin(mechanism, "wrong-secret"));
      const failure = await failureOf(publish({ address: topic }));
      expect(failure.code).toBe("authentication");
      expect(failure.message).toContain("saslPassword");
      expect(JSON.stringify([failure.message, failure.stack, lines])).not.toContain("wrong-secret");
    });
  });
});

import { afterEach, describe, expect, test } from "@jest/globals";
import type { Admin, Kafka, Message } from "kafkajs";
import { createKafkaSource } from "../../src/adapters/sources/kafka/index.ts";
import type { KafkaSourceConfig } from "../../src/adapters/sources/kafka/kind.ts";
import type { Intake, Source } from "../../src/ports/source.ts";
import { describeWith, produceCompressed, unique } from "../support/brokers/index.ts";
import { brokerTools } from "../support/brokerTools.ts";
import { eventually } from "../support/eventually.ts";
import { lagOf, makeTopic, readTopic, sharedKafkaForBlock } from "../support/kafkaClient.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { RecordingIntake } from "../support/recordingIntake.ts";
import { stopWithin } from "../support/stopWithin.ts";

/** The broker's lower bound for a session is 6 s. */
const TIMES = { sessionMs: 6000, heartbeatMs: 300, rebalanceMs: 10_000, fetchWaitMs: 100 };
/** Longer than a session. */
const PATIENCE = { timeoutMs: 20_000 };

const sources: { readonly source: Source; readonly intake: RecordingIntake }[] = [];

afterEach(async () => {
  for (const { intake } of sources) intake.release();
  await Promise.all(sources.splice(0).map(({ source }) => stopWithin(3000, source)));
});
failOnLeaks();

/** @param journal the bodies that the source's intake takes, in the order in which its takes end, are added to it */
function create(
  config: Pick<KafkaSourceConfig, "bootstrapServers" | "topics" | "groupId"> & Partial<KafkaSourceConfig>,
  journal: string[] = [],
) {
  const intake = new RecordingIntake();
  const journaled: Intake = {
    async take(messages, signal) {
      const refused = await intake.take(messages, signal);
      journal.push(...messages.map(({ body }) => String(body)));
      return refused;
    },
  };
  const { tools, lines } = brokerTools();
  const defaults = {
    autoOffsetReset: "earliest",
    maxPollRecords: 10,
    eventTypeFromHeader: false,
    securityProtocol: "PLAINTEXT",
  } as const;
  const source = createKafkaSource(
    { ...defaults, ...config },
    { ...tools, name: "orders", intake: journaled, refusedRetryMs: 500 },
    TIMES,
  );
  sources.push({ source, intake });
  return { source, intake, lines };
}

async function consuming(source: Source): Promise<void> {
  await source.start();
  await eventually(() => source.check(), PATIENCE);
}

async function send(kafka: Kafka, topic: string, messages: Message[]): Promise<void> {
  const producer = kafka.producer({ allowAutoTopicCreation: false });
  await producer.connect();
  try {
    await producer.send({ topic, messages });
  } finally {
    await producer.disconnect();
  }
}

const numbered = (from: number, to: number): Message[] =>
  Array.from({ length: to - from + 1 }, (_, n) => ({ key: `k${n % 7}`, value: String(from + n) }));
/** The bodies of {@link numbered} records. */
const range = (from: number, to: number) => numbered(from, to).map(({ value }) => String(value));
const byNumber = (a: string | null, b: string | null) => Number(a) - Number(b);
const bodies = (intake: RecordingIntake) => intake.taken.map(({ body }) => body?.toString() ?? null);

/** Waits until the numbers up to `last` were taken, by one or the other. */
async function allTaken(intakes: readonly RecordingIntake[], last: number): Promise<void> {
  await eventually(() => {
    const taken = new Set(intakes.flatMap(bodies));
    const missing = Array.from({ length: last }, (_, n) => String(n + 1)).filter((text) => !taken.has(text));
    expect(missing.slice(0, 5)).toEqual([]);
  }, PATIENCE);
}

describeWith(["kafka"], "a Kafka source", () => {
  const { server, kafka } = sharedKafkaForBlock();
  const own = async (partitions = 1, configuration = {}) => {
    const topic = unique("topic");
    await makeTopic(kafka(), topic, partitions, configuration);
    return { bootstrapServers: server().bootstrapServers, topics: [topic], groupId: unique("group"), topic };
  };

  test("hands over keys, headers and tombstones", async () => {
    const { topic, ...config } = await own();
    await send(kafka(), topic, [
      {
        key: "Zürich",
        value: "{}",
        headers: { "X-Tenant": "blue", twice: ["first", "last"], bytes: Buffer.from([255]) },
      },
      { key: Buffer.from([255, 0]), value: null },
      { value: "{}" },
      { key: "", value: "{}", timestamp: "1704067200000" },
    ]);
    const { source, intake } = create(config);
    await consuming(source);
    await eventually(() => expect(intake.taken).toHaveLength(4), PATIENCE);
    expect(intake.taken).toMatchObject([
      { recordKey: "Zürich", headers: { "X-Tenant": "blue", twice: "last", bytes: "/w==" } },
      { recordKey: "/wA=", body: null, headers: {} },
      { recordKey: undefined },
      { recordKey: undefined },
    ]);
    expect(intake.taken.map(({ origin }) => origin?.["x-kafka-offset"])).toEqual(["0", "1", "2", "3"]);
    expect(intake.taken[3]?.origin).toEqual({
      "x-kafka-topic": topic,
      "x-kafka-partition": "0",
      "x-kafka-offset": "3",
      "x-kafka-timestamp": "2024-01-01T00:00:00.000Z",
    });
    expect(intake.taken[3]?.publishedAt).toBe(Date.UTC(2024));
  });

  test("holds up a partition behind a record that the inbox table refuses, commits what is before it, and reads the others", async () => {
    const { topic, ...config } = await own(2);
    const records = (partition: number) =>
      Array.from({ length: 30 }, (_, n) => ({ partition, value: `${partition}-${n}` }));
    const { source, intake } = create(config);
    intake.refuses = ({ body }) => String(body) === "0-13";
    await consuming(source);
    await send(kafka(), topic, records(0));
    await eventually(() => expect(intake.seen.map(({ body }) => String(body))).toContain("0-13"), PATIENCE);
    await send(kafka(), topic, records(1));
    await eventually(() => expect(bodies(intake)).toContain("1-29"), PATIENCE);
    expect(bodies(intake)).not.toContain("0-20");
    await eventually(async () => expect(await lagOf(kafka(), config.groupId, topic)).toBe(17), PATIENCE);
    const offered = () => intake.seen.filter(({ body }) => String(body) === "0-13").length;
    await eventually(() => expect(offered()).toBeGreaterThan(2), PATIENCE);
    intake.refuses = () => false;
    await eventually(async () => expect(await lagOf(kafka(), config.groupId, topic)).toBe(0), PATIENCE);
    expect(new Set(bodies(intake)).size).toBe(60);
  });

  test.each(["gzip", "snappy", "lz4", "zstd"] as const)(
    "reads batches compressed with %s, of several blocks",
    async (codec) => {
      const { topic, ...config } = await own(1, { "max.message.bytes": 5_000_000 });
      // Random text and repeated text, more than a block of any codec.
      const lines = Array.from(
        { length: 400 },
        (_, n) => `${n} ${Array.from({ length: 20 }, () => Math.random().toString(36)).join("")} ${"ab".repeat(200)}`,
      );
      await produceCompressed(server(), topic, codec, lines);
      const { source, intake } = create({ ...config, maxPollRecords: 1000 });
      await consuming(source);
      await eventually(() => expect(intake.taken).toHaveLength(lines.length), PATIENCE);
      expect(bodies(intake)).toEqual(lines);
    },
    60_000,
  );

  test("begins with what comes after its first join, and after that with what it has not taken, when told latest", async () => {
    const { topic, ...config } = await own();
    await send(kafka(), topic, numbered(1, 10));
    const latest = { ...config, autoOffsetReset: "latest" as const };
    const first = create(latest);
    await consuming(first.source);
    await first.source.stop(new AbortController().signal);
    expect(bodies(first.intake)).toEqual([]);
    // Nothing was taken yet, and still these are not before the beginning.
    await send(kafka(), topic, numbered(11, 20));
    const second = create(latest);
    await consuming(second.source);
    await eventually(() => expect(bodies(second.intake)).toHaveLength(10), PATIENCE);
    expect(bodies(second.intake)).toEqual(numbered(11, 20).map(({ value }) => value));
  });

  describe("with autoOffsetReset latest, of a group that has begun its topics,", () => {
    const begun = async (partitions = 1) => {
      const { topic, ...config } = await own(partitions);
      await send(kafka(), topic, numbered(1, 5));
      const latest = { ...config, autoOffsetReset: "latest" as const };
      const first = create(latest);
      await consuming(first.source);
      await send(kafka(), topic, numbered(6, 10));
      await eventually(() => expect(bodies(first.intake).toSorted(byNumber)).toEqual(range(6, 10)), PATIENCE);
      return { topic, latest, first };
    };
    const leave = (source: Source) => source.stop(new AbortController().signal);
    const withAdmin = async (work: (admin: Admin) => Promise<unknown>) => {
      const admin = kafka().admin();
      await admin.connect();
      await work(admin).finally(() => admin.disconnect());
    };
    const addPartitions = (topic: string, count: number) =>
      withAdmin((admin) => admin.createPartitions({ topicPartitions: [{ topic, count }] }));
    const sendTo = (topic: string, partition: number, from: number, to: number) =>
      eventually(
        () =>
          send(
            kafka(),
            topic,
            numbered(from, to).map((record) => ({ ...record, partition })),
          ),
        PATIENCE,
      );

    test("reads partitions that are added under way from their first record", async () => {
      const { topic, first } = await begun();
      await addPartitions(topic, 3);
      await sendTo(topic, 1, 11, 13);
      await sendTo(topic, 2, 14, 16);
      // The client learns of them after 30 s at the latest.
      const patience = { timeoutMs: 50_000 };
      await eventually(() => expect(bodies(first.intake).toSorted(byNumber)).toEqual(range(6, 16)), patience);
      const said = first.lines.find(({ fields }) => String(fields.detail).startsWith("Topic has been updated"));
      expect(said).toMatchObject({ level: "warn", fields: { topic, partitions: [1, 2] } });
    }, 90_000);

    test("reads partitions that were added while it was away from their first record", async () => {
      const { topic, latest, first } = await begun();
      await leave(first.source);
      await addPartitions(topic, 3);
      await sendTo(topic, 0, 11, 12);
      await sendTo(topic, 2, 13, 16);
      const second = create(latest);
      await consuming(second.source);
      await eventually(() => expect(bodies(second.intake).toSorted(byNumber)).toEqual(range(11, 16)), PATIENCE);
    });

    test("continues at the first record when its offset is out of range", async () => {
      const { topic, latest, first } = await begun();
      await leave(first.source);
      await send(kafka(), topic, numbered(11, 20));
      await withAdmin(async (admin) => {
        // The client deletes only from topics that it has asked about.
        await admin.fetchTopicOffsets(topic);
        await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "18" }] });
      });
      const second = create(latest);
      await consuming(second.source);
      await eventually(() => expect(bodies(second.intake)).toEqual(range(19, 20)), PATIENCE);
    });

    test("reads a topic that is made again from its first record", async () => {
      const { topic, first } = await begun();
      await withAdmin((admin) => admin.deleteTopics({ topics: [topic] }));
      await eventually(() => expect(first.source.check()).rejects.toThrow("does not exist"), PATIENCE);
      await eventually(() => makeTopic(kafka(), topic), PATIENCE);
      await send(kafka(), topic, numbered(11, 15));
      await eventually(() => expect(bodies(first.intake).slice(5)).toEqual(range(11, 15)), PATIENCE);
    });

    test("begins another topic at its end", async () => {
      const { topic, latest, first } = await begun();
      await leave(first.source);
      const other = unique("other");
      await makeTopic(kafka(), other, 2);
      await send(kafka(), other, numbered(101, 110));
      const second = create({ ...latest, topics: [topic, other] });
      await consuming(second.source);
      await send(kafka(), topic, numbered(11, 12));
      await send(kafka(), other, numbered(111, 112));
      await eventually(
        () => expect(bodies(second.intake).toSorted(byNumber)).toEqual([...range(11, 12), ...range(111, 112)]),
        PATIENCE,
      );
    });

    test("gives a later member unread partitions, from the offsets at which the group began", async () => {
      const { topic, latest } = await begun(4);
      const second = create(latest);
      await consuming(second.source);
      const all = () => sources.flatMap(({ intake }) => bodies(intake));
      await send(kafka(), topic, numbered(11, 40));
      await eventually(() => expect([...new Set(all())].toSorted(byNumber)).toEqual(range(6, 40)), PATIENCE);
    });
  });

  test("reads nothing from before its first join with autoOffsetReset latest, when several members join at once", async () => {
    const { topic, ...config } = await own(4);
    await send(kafka(), topic, numbered(1, 100));
    const members = [1, 2, 3].map(() => create({ ...config, autoOffsetReset: "latest" }));
    await Promise.all(members.map(({ source }) => consuming(source)));
    await send(kafka(), topic, numbered(101, 140));
    const all = () => [...new Set(members.flatMap(({ intake }) => bodies(intake)))].toSorted(byNumber);
    await eventually(() => expect(all()).toEqual(range(101, 140)), PATIENCE);
  });

  test("leaves no lag behind transactions, committed and aborted", async () => {
    const { topic, ...config } = await own();
    const { source, intake } = create(config);
    await consuming(source);
    const producer = kafka().producer({
      transactionalId: unique("transaction"),
      maxInFlightRequests: 1,
      idempotent: true,
    });
    await producer.connect();
    try {
      for (const [n, end] of (["commit", "abort", "abort", "commit", "abort"] as const).entries()) {
        // A broker makes its topic of transactions at the first one, which may take longer than the client asks for it.
        const transaction = await eventually(() => producer.transaction(), PATIENCE);
        await transaction.send({ topic, messages: [{ value: `${end} ${n}` }] });
        await transaction[end]();
      }
    } finally {
      await producer.disconnect();
    }
    await eventually(async () => expect(await lagOf(kafka(), config.groupId, topic)).toBe(0), PATIENCE);
    expect(bodies(intake)).toEqual(["commit 0", "commit 3"]);
  });

  test("says which topic is missing, and consumes when it appears", async () => {
    const { topic, ...config } = await own();
    const missing = unique("missing");
    const { source, intake } = create({ ...config, topics: [topic, missing] });
    await source.start();
    await eventually(() => expect(source.check()).rejects.toThrow(`"${missing}" does not exist: create it`), PATIENCE);
    await makeTopic(kafka(), missing);
    await eventually(() => source.check(), PATIENCE);
    await send(kafka(), missing, numbered(1, 3));
    await allTaken([intake], 3);
  });

  test("keeps its partitions through a take that lasts longer than a session", async () => {
    const { topic, ...config } = await own();
    const { source, intake } = create(config);
    await consuming(source);
    intake.hold();
    await send(kafka(), topic, numbered(1, 5));
    await eventually(() => intake.running === 1, PATIENCE);
    const since = performance.now();
    await eventually(() => performance.now() - since > 1.5 * TIMES.sessionMs, PATIENCE);
    await source.check();
    intake.release();
    await eventually(async () => expect(await lagOf(kafka(), config.groupId, topic)).toBe(0), PATIENCE);
    expect(intake.offered).toHaveLength(1);
  });

  test("loses and skips nothing while others join and leave, and keeps the order of each partition", async () => {
    const { topic, ...config } = await own(4);
    // What all of them took, in the order of the takes.
    const journal: string[] = [];
    const first = create(config, journal);
    await consuming(first.source);
    const producer = kafka().producer({ allowAutoTopicCreation: false });
    await producer.connect();
    let sent = 0;
    let isOver = false;
    const traffic = (async () => {
      while (!isOver && sent < 20_000) {
        await producer.send({ topic, messages: numbered(sent + 1, sent + 20) });
        sent += 20;
      }
    })();
    const intakes = [first.intake];
    for (let round = 0; round < 3; round++) {
      const other = create(config, journal);
      intakes.push(other.intake);
      await consuming(other.source);
      await eventually(() => other.intake.taken.length > 0, PATIENCE);
      await other.source.stop(new AbortController().signal);
    }
    isOver = true;
    await traffic;
    await producer.disconnect();
    await allTaken(intakes, sent);
    await eventually(async () => expect(await lagOf(kafka(), config.groupId, topic)).toBe(0), PATIENCE);
    // No more than one take for each partition.
    for (const intake of intakes) expect(intake.mostRunning).toBeLessThanOrEqual(4);
    const records = await readTopic(kafka(), topic, sent);
    const firsts = [...new Set(journal)];
    for (const partition of new Set(records.map((record) => record.partition))) {
      const inOrder = records.filter((record) => record.partition === partition).map(({ value }) => String(value));
      const written = new Set(inOrder);
      expect(firsts.filter((body) => written.has(body))).toEqual(inOrder);
    }
    expect(firsts).toHaveLength(sent);
  }, 60_000);
});

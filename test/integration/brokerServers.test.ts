import { expect, test } from "@jest/globals";
import { connect as connectRabbitmq } from "amqplib";
import { Kafka, type KafkaConfig, logLevel } from "kafkajs";
import { connect as connectNats, ErrorCode, JSONCodec, type NatsConnection } from "nats";
import {
  createTopic,
  describeWith,
  type KafkaAddress,
  type NatsAddress,
  natsStream,
  type OwnServer,
  produceCompressed,
  type RabbitmqAddress,
  START_TIMEOUT_MS,
  sharedKafka,
  sharedNats,
  sharedRabbitmq,
  startKafka,
  startNats,
  startRabbitmq,
  unique,
} from "../support/brokers/index.ts";
import { failOnLeaks } from "../support/leaks.ts";

failOnLeaks();

/** What every server must do: keep what it has confirmed through a stop and a crash, and be away in between. */
async function survives(server: OwnServer, isUp: () => Promise<boolean>, stillThere: () => Promise<void>) {
  await server.stop();
  expect(await isUp()).toBe(false);
  await server.start();
  await stillThere();
  await server.kill();
  expect(await isUp()).toBe(false);
  await server.start();
  await stillThere();
}

async function succeeds(attempt: () => Promise<unknown>): Promise<boolean> {
  try {
    await attempt();
    return true;
  } catch {
    return false;
  }
}

describeWith(["nats"], "a NATS server of the tests", () => {
  const text = JSONCodec<string>();

  async function withClient<T>(server: NatsAddress, use: (client: NatsConnection) => Promise<T>, options = {}) {
    const client = await connectNats({ servers: server.url, reconnect: false, ...options });
    try {
      return await use(client);
    } finally {
      await client.close();
    }
  }

  test(
    "keeps the messages of a stream through a stop and a crash, and is away in between",
    async () => {
      await using server = await startNats();
      await natsStream(server, { stream: "orders", subjects: ["orders.>"] });
      await withClient(server, (client) => client.jetstream().publish("orders.new", text.encode("first")));
      await survives(
        server,
        () => succeeds(() => withClient(server, async () => {})),
        () =>
          withClient(server, async (client) => {
            const message = await (await client.jetstreamManager()).streams.getMessage("orders", { seq: 1 });
            expect(text.decode(message.data)).toBe("first");
          }),
      );
    },
    START_TIMEOUT_MS,
  );

  test.each([
    ["user and password", { user: "svc", password: "svc-secret" }, { user: "svc", pass: "svc-secret" }],
    ["a token", { token: "svc-token" }, { token: "svc-token" }],
  ])("lets in only who shows %s", async (_, options, credentials) => {
    await using server = await startNats(options);
    await expect(withClient(server, async () => {})).rejects.toMatchObject({ code: ErrorCode.AuthorizationViolation });
    await withClient(server, (client) => client.flush(), credentials);
  });

  test("takes payloads up to a given size, and serves without JetStream", async () => {
    await using server = await startNats({ maxPayload: 1000, jetStream: false });
    await withClient(server, async (client) => {
      expect(client.info?.max_payload).toBe(1000);
      await expect(client.jetstreamManager()).rejects.toMatchObject({ code: ErrorCode.JetStreamNotEnabled });
    });
  });

  test(
    "is one and the same for all who share it",
    async () => {
      const [first, second] = await Promise.all([sharedNats(), sharedNats()]);
      expect(second).toEqual(first);
      const name = unique("stream");
      await natsStream(first, { stream: name, subjects: [`${name}.>`] });
      await withClient(second, (client) => client.jetstream().publish(`${name}.a`, text.encode("hello")));
    },
    START_TIMEOUT_MS,
  );
});

describeWith(["rabbitmq"], "a RabbitMQ server of the tests", () => {
  async function withChannel<T>(
    server: RabbitmqAddress,
    use: (
      channel: Awaited<ReturnType<Awaited<ReturnType<typeof connectRabbitmq>>["createConfirmChannel"]>>,
    ) => Promise<T>,
  ): Promise<T> {
    const connection = await connectRabbitmq(server.url);
    connection.on("error", () => {}); // Whoever uses the channel sees the error.
    try {
      return await use(await connection.createConfirmChannel());
    } finally {
      await connection.close();
    }
  }

  test(
    "keeps confirmed messages of a durable queue through a stop and a crash, and is away in between",
    async () => {
      await using server = await startRabbitmq();
      await withChannel(server, async (channel) => {
        await channel.assertQueue("orders", { durable: true });
        channel.sendToQueue("orders", Buffer.from("first"), { persistent: true });
        await channel.waitForConfirms();
      });
      await survives(
        server,
        () => succeeds(() => withChannel(server, async () => {})),
        () =>
          withChannel(server, async (channel) => {
            const message = await channel.get("orders");
            expect(message ? message.content.toString() : undefined).toBe("first");
            if (message) channel.nack(message);
          }),
      );
    },
    START_TIMEOUT_MS,
  );

  test(
    "is one and the same for all who share it",
    async () => {
      const [first, second] = await Promise.all([sharedRabbitmq(), sharedRabbitmq()]);
      expect(second).toEqual(first);
      const queue = unique("queue");
      await withChannel(first, (channel) => channel.assertQueue(queue));
      await withChannel(second, async (channel) => {
        await channel.checkQueue(queue);
        await channel.deleteQueue(queue);
      });
    },
    START_TIMEOUT_MS,
  );
});

describeWith(["kafka"], "a Kafka broker of the tests", () => {
  const client = (server: KafkaAddress, options: Partial<KafkaConfig> = {}) =>
    new Kafka({
      brokers: server.bootstrapServers.split(","),
      logLevel: logLevel.NOTHING,
      retry: { retries: 0 },
      ...options,
    });

  async function offsets(server: KafkaAddress, topic: string): Promise<string[]> {
    const admin = client(server).admin();
    try {
      await admin.connect();
      return (await admin.fetchTopicOffsets(topic)).map(({ offset }) => offset);
    } finally {
      await admin.disconnect();
    }
  }

  test(
    "keeps the records of a topic through a stop and a crash, and is away in between",
    async () => {
      await using server = await startKafka();
      await createTopic(server, "orders", 1);
      const producer = client(server).producer();
      await producer.connect();
      await producer.send({ topic: "orders", acks: -1, messages: [{ key: "a", value: "first" }] });
      await producer.disconnect();
      await survives(
        server,
        () => succeeds(() => offsets(server, "orders")),
        async () => expect(await offsets(server, "orders")).toEqual(["1"]),
      );
    },
    START_TIMEOUT_MS,
  );

  test(
    "lets in only who logs in, by any of three mechanisms",
    async () => {
      await using server = await startKafka({ sasl: true });
      const tryAs = async (mechanism: "plain" | "scram-sha-256" | "scram-sha-512", password: string) => {
        const sasl = { mechanism, username: "svc", password } as KafkaConfig["sasl"];
        const admin = client(server, sasl ? { sasl } : {}).admin();
        try {
          await admin.connect();
          await admin.listTopics();
        } finally {
          await admin.disconnect();
        }
      };
      for (const mechanism of ["plain", "scram-sha-256", "scram-sha-512"] as const) {
        await tryAs(mechanism, "svc-secret");
        await expect(tryAs(mechanism, "wrong")).rejects.toMatchObject({ name: "KafkaJSSASLAuthenticationError" });
      }
    },
    START_TIMEOUT_MS,
  );

  test(
    "holds batches of every codec, which the console producer wrote",
    async () => {
      const [server, other] = await Promise.all([sharedKafka(), sharedKafka()]);
      expect(other).toEqual(server);
      const topic = unique("topic");
      await createTopic(server, topic, 1);
      for (const codec of ["gzip", "snappy", "lz4", "zstd"] as const) {
        await produceCompressed(server, topic, codec, ["key\tone", "key\ttwo"], { keys: true });
      }
      expect(await offsets(server, topic)).toEqual(["8"]);
      await expect(produceCompressed(server, topic, "gzip", ["no key"], { keys: true })).rejects.toThrow(/no key/i);
    },
    START_TIMEOUT_MS,
  );
});

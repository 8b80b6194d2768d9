import { setTimeout as pause, setImmediate as turn } from "node:timers/promises";
import { beforeEach, expect, test } from "@jest/globals";
import { connect } from "amqplib";
import type { Intake, Source } from "../../src/ports/source.ts";
import {
  describeWith,
  type RabbitmqAddress,
  serverForBlock,
  sharedRabbitmq,
  unique,
} from "../support/brokers/index.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { withChannel } from "../support/rabbitmqClient.ts";
import { recordingLog } from "../support/recorders.ts";
import { RecordingIntake } from "../support/recordingIntake.ts";
import { stopWithin } from "../support/stopWithin.ts";
import { within } from "../support/within.ts";
import { rabbitmqBench, sourceAt } from "./rabbitmqSetup.ts";

/** A table in a table in a table. */
function nested(depth: number): Buffer {
  const parts: Buffer[] = [];
  for (let length = 0, n = 0; n < depth; n += 1, length += 7) {
    const head = Buffer.from([1, 0x6e, 0x46, 0, 0, 0, 0]);
    head.writeUInt32BE(length, 3);
    parts.push(head);
  }
  return Buffer.concat(parts.reverse());
}

/** Publishes a message with these bytes for a header table, which no client library would send. */
async function sendRaw(
  { host, port, user, password }: RabbitmqAddress,
  queue: string,
  body: Buffer,
  table: Buffer,
): Promise<void> {
  const connection = await connect({ hostname: host, port, username: user, password });
  connection.on("error", () => {});
  try {
    const channel = await connection.createConfirmChannel();
    const { ch, connection: wire } = channel as unknown as {
      readonly ch: number;
      readonly connection: { sendBytes(bytes: Buffer): void };
    };
    const short = (text: string) => Buffer.concat([Buffer.from([text.length]), Buffer.from(text)]);
    const frame = (type: number, payload: Buffer) => {
      const head = Buffer.alloc(7);
      head.writeUInt8(type, 0);
      head.writeUInt16BE(ch, 1);
      head.writeUInt32BE(payload.length, 3);
      return Buffer.concat([head, payload, Buffer.from([0xce])]);
    };
    const publish = Buffer.concat([Buffer.from([0, 60, 0, 40, 0, 0, 0]), short(queue), Buffer.from([0])]);
    const header = Buffer.alloc(18);
    header.writeUInt16BE(60, 0);
    header.writeUInt32BE(body.length, 8);
    header.writeUInt16BE(0x2000, 12);
    header.writeUInt32BE(table.length, 14);
    const confirmed = new Promise((resolve, reject) => {
      channel.once("ack", resolve);
      channel.once("close", () => reject(new Error("the broker refused the message")));
    });
    wire.sendBytes(Buffer.concat([frame(1, publish), frame(2, Buffer.concat([header, table])), frame(3, body)]));
    await confirmed;
  } finally {
    await connection.close();
  }
}

const noCutoff = (): AbortSignal => new AbortController().signal;

describeWith(["rabbitmq"], "a RabbitMQ source", () => {
  const server = serverForBlock(sharedRabbitmq);
  const { later, proxy: startProxy } = rabbitmqBench(server);
  let queue: string;
  let intake: RecordingIntake;

  beforeEach(() => {
    queue = unique("queue");
    intake = new RecordingIntake();
    later(() => withChannel(server().url, (channel) => channel.deleteQueue(queue)));
  });
  failOnLeaks();

  const start = async (options: Parameters<typeof sourceAt>[3] = {}, url = server().url): Promise<Source> => {
    const source = sourceAt(url, queue, intake, options);
    later(() => {
      intake.release();
      return stopWithin(5000, source);
    });
    await source.start();
    return source;
  };
  const consuming = (source: Source): Promise<void> =>
    eventually(() => source.check(), { timeoutMs: 10_000, label: "the source's check" });
  /** What the check says when it says this. */
  const fault = (source: Source, expected: RegExp): Promise<void> =>
    eventually(() => expect(source.check()).rejects.toThrow(expected), { timeoutMs: 10_000 });
  const send = (...bodies: readonly string[]): Promise<void> =>
    withChannel(server().url, async (channel) => {
      for (const body of bodies) channel.sendToQueue(queue, Buffer.from(body), { persistent: true });
      await channel.waitForConfirms();
    });
  const declare = () => withChannel(server().url, (channel) => channel.assertQueue(queue, { durable: true }));
  const ready = () => withChannel(server().url, async (channel) => (await channel.checkQueue(queue)).messageCount);
  const bodies = (): string[] => intake.taken.map(({ body }) => String(body));
  const taken = (count: number): Promise<void> =>
    eventually(() => expect(intake.taken.length).toBeGreaterThanOrEqual(count), { timeoutMs: 10_000 });

  test("says that its queue is missing, and consumes it when it appears", async () => {
    const source = await start();
    await fault(source, new RegExp(`the queue "${queue}" of amqp://.* does not exist: create it, or set declareQueue`));
    await declare();
    await consuming(source);
    await send("1");
    await taken(1);
  });

  test("declares its queue durable with declareQueue", async () => {
    const source = await start({ declareQueue: true });
    await consuming(source);
    // RabbitMQ refuses this when the queue is another one.
    await declare();
  });

  test("says what to do about a queue that is there with other properties", async () => {
    await withChannel(server().url, (channel) => channel.assertQueue(queue, { durable: true, messageTtl: 60_000 }));
    const source = await start({ declareQueue: true });
    await fault(source, /exists with other properties than durable alone: set declareQueue to false/);
  });

  test("says that another connection has the queue for itself", async () => {
    const owner = await connect(server().url);
    later(() => owner.close());
    const channel = await owner.createChannel();
    await channel.assertQueue(queue, { exclusive: true, durable: true });
    const source = await start();
    await fault(source, /must not be exclusive to another consumer/);
  });

  test("refuses a stream, which does not remember what was read, and consumes a queue in its place", async () => {
    const stream = { durable: true, arguments: { "x-queue-type": "stream" } };
    await withChannel(server().url, (channel) => channel.assertQueue(queue, stream));
    await send("1");
    const source = await start({ declareQueue: true });
    await fault(
      source,
      new RegExp(`the queue "${queue}" of amqp://.* is a stream, .* would be lost. Bind a classic or quorum`),
    );
    await withChannel(server().url, (channel) => channel.deleteQueue(queue));
    await consuming(source);
    await send("2");
    await taken(1);
    expect(bodies()).toEqual(["2"]);
  });

  test("consumes a quorum queue, and leaves no trace in it of having asked whether it is a stream", async () => {
    const quorum = { durable: true, arguments: { "x-queue-type": "quorum" } };
    await withChannel(server().url, (channel) => channel.assertQueue(queue, quorum));
    await send("1");
    await start();
    await taken(1);
    expect(intake.taken[0]?.headers).toEqual({});
  });

  test("takes a message whose headers are nested 18,000 deep, without what lies deepest", async () => {
    await declare();
    const source = await start({ prefetchCount: 1 });
    await consuming(source);
    await sendRaw(server(), queue, Buffer.from("1"), nested(18_000));
    await send("2");
    await taken(2);
    expect(bodies()).toEqual(["1", "2"]);
    expect(intake.taken[0]?.undecodable).toBeUndefined();
    expect(intake.taken[0]?.headers.n).toMatch(/^(\{"n":)+null\}+$/);
    await source.check();
  });

  test("acknowledges no refused message with those behind it when it is offered again", async () => {
    await declare();
    await send("refused");
    const offered: string[][] = [];
    const slow: Intake = {
      async take(messages) {
        offered.push(messages.map(({ body }) => String(body)));
        // Longer than the wait before the next offer.
        await pause(20);
        return messages.filter(({ body }) => String(body) === "refused");
      },
    };
    const source = sourceAt(server().url, queue, slow, { refusedRetryMs: 1 });
    later(() => source.stop(noCutoff()));
    await source.start();
    for (let n = 1; n <= 5; n += 1) {
      await send(String(n));
      await eventually(() => expect(offered.flat()).toContain(String(n)));
    }
    await source.stop(noCutoff());
    await eventually(async () => expect(await ready()).toBe(1));
  });

  test("acknowledges no refused message with those behind it during a stop", async () => {
    await declare();
    await send("refused", "2", "3");
    let stopped: Promise<void> | undefined;
    const stopping: Intake = {
      async take(messages) {
        const refused = messages.filter(({ body }) => String(body) === "refused");
        if (refused.length > 0 && messages.length > 1) {
          stopped = source.stop(noCutoff());
          // Until the consumer is being cancelled.
          for (let turns = 0; turns < 5; turns += 1) await turn();
        }
        return refused;
      },
    };
    const source = sourceAt(server().url, queue, stopping, { refusedRetryMs: 1 });
    later(() => source.stop(noCutoff()));
    await source.start();
    await eventually(async () => {
      // Offered again together with what comes.
      if (stopped === undefined) await send("more");
      return stopped !== undefined;
    });
    await stopped;
    await eventually(async () => expect(await ready()).toBeGreaterThan(0));
    expect(
      await withChannel(server().url, async (channel) => String(((await channel.get(queue)) || undefined)?.content)),
    ).toBe("refused");
  });

  test("takes the deletion of its queue for a fault, and consumes the next queue of that name", async () => {
    await declare();
    const source = await start();
    await consuming(source);
    await withChannel(server().url, (channel) => channel.deleteQueue(queue));
    await fault(source, /the queue was deleted|does not exist/);
    await declare();
    await consuming(source);
    await send("1");
    await taken(1);
  });

  test("reads no more than prefetchCount while a take waits, and takes together what came meanwhile", async () => {
    await declare();
    const source = await start({ prefetchCount: 7 });
    await consuming(source);
    intake.hold();
    await send("1");
    await eventually(() => intake.running === 1);
    await send(...Array.from({ length: 19 }, (_, n) => String(n + 2)));
    // Seven are with the source, and the broker keeps the others.
    await eventually(async () => expect(await ready()).toBe(13));
    intake.release();
    await taken(20);
    expect(intake.offered[0]).toHaveLength(1);
    expect(intake.offered[1]).toHaveLength(6);
    expect(bodies()).toEqual(Array.from({ length: 20 }, (_, n) => String(n + 1)));
    await source.stop(noCutoff());
    expect(await ready()).toBe(0);
  });

  test("stops in a few seconds when the broker does not answer any more", async () => {
    await declare();
    const proxy = await startProxy();
    const source = await start({}, proxy.url);
    await consuming(source);
    proxy.setMode("held");
    await within(6000, "stop", source.stop(noCutoff()));
  });

  test("hands over ids, properties and headers of every type", async () => {
    await declare();
    const source = await start();
    await consuming(source);
    await withChannel(server().url, async (channel) => {
      const headers = {
        "X-Tenant": "blue",
        count: 3,
        big: 2 ** 52,
        rate: 0.5,
        urgent: true,
        raw: Buffer.from([0xff]),
        at: { "!": "timestamp", value: 1704067200 },
        price: { "!": "decimal", value: { places: 2, digits: 1999 } },
        parts: ["a", 1],
      };
      channel.sendToQueue(queue, Buffer.from("{}"), {
        messageId: "m-1",
        correlationId: "c-1",
        contentType: "application/json",
        type: "order.created",
        appId: "shop",
        priority: 7,
        headers: { ...headers, "X-AMQP-Exchange": "forged" },
      });
      await channel.waitForConfirms();
    });
    await taken(1);
    expect(intake.taken[0]).toMatchObject({ messageId: "m-1", correlationId: "c-1" });
    expect(intake.taken[0]?.origin).toEqual({
      "x-amqp-exchange": null,
      "x-amqp-routing-key": queue,
      "x-amqp-type": "order.created",
      "x-amqp-app-id": "shop",
      "x-amqp-priority": "7",
      "x-amqp-properties": null,
    });
    expect(intake.taken[0]?.headers).toEqual({
      "X-AMQP-Exchange": "forged",
      "app-id": "shop",
      "X-Tenant": "blue",
      count: "3",
      big: String(2 ** 52),
      rate: "0.5",
      urgent: "true",
      raw: "/w==",
      at: "2024-01-01T00:00:00.000Z",
      price: "19.99",
      parts: '["a",1]',
      "content-type": "application/json",
      type: "order.created",
    });
  });

  test("hands over as JSON what the broker says about a message that was dead-lettered", async () => {
    await declare();
    const first = unique("first");
    later(() => withChannel(server().url, (channel) => channel.deleteQueue(first)));
    await withChannel(server().url, async (channel) => {
      await channel.assertQueue(first, { deadLetterExchange: "", deadLetterRoutingKey: queue });
      channel.sendToQueue(first, Buffer.from("{}"));
      await channel.waitForConfirms();
      const message = await channel.get(first);
      if (message !== false) channel.reject(message, false);
    });
    const source = await start();
    await consuming(source);
    await taken(1);
    const [death] = JSON.parse(intake.taken[0]?.headers["x-death"] ?? "[]");
    expect(death).toMatchObject({
      queue: first,
      reason: "rejected",
      count: 1,
      time: expect.stringMatching(/^20..-.*Z$/),
    });
  });

  test("with a URL that is no AMQP URI is a fault for good, and shows nothing of it", async () => {
    const { log, lines } = recordingLog();
    const source = await start({ log }, "svc:hunter2@broker");
    const error: unknown = await source.check().catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code: "url_invalid" });
    expect(`${(error as Error).stack}${JSON.stringify(lines)}`).not.toContain("hunter2");
    await source.stop(noCutoff());
    await expect(source.check()).rejects.toThrow(/stopped/);
  });
});

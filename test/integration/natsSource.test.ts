import { afterEach, beforeEach, expect, test } from "@jest/globals";
import {
  AckPolicy,
  type ConsumerConfig,
  DeliverPolicy,
  type JetStreamManager,
  type NatsConnection,
  nanos,
  ReplayPolicy,
} from "nats";
import { StoppingError } from "../../src/model/errors.ts";
import type { BrokerMessage } from "../../src/ports/source.ts";
import { describeWith, sharedNats, startNats } from "../support/brokers/index.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { RecordingIntake } from "../support/recordingIntake.ts";
import { startTcpProxy } from "../support/tcpProxy.ts";
import { NatsBench, noSignal, uniqueStream } from "./natsSetup.ts";

let bench: NatsBench;

beforeEach(() => {
  bench = new NatsBench();
});
afterEach(() => bench.close());
failOnLeaks();

describeWith(["nats"], "the NATS source", () => {
  let url: string;
  let client: NatsConnection;
  let manager: JetStreamManager;
  let stream: string;
  let subject: string;
  let subjects: string[];
  let intake: RecordingIntake;

  beforeEach(async () => {
    url = (await sharedNats()).url;
    client = await bench.client(url);
    manager = await client.jetstreamManager();
    ({ stream, subject, subjects } = uniqueStream());
    intake = new RecordingIntake();
  });
  afterEach(async () => {
    intake.release();
    const left = await bench.manager(url);
    await left.streams.delete(stream).catch(() => {});
  });

  const send = async (from: number, to: number, on = subject): Promise<void> => {
    const jetStream = client.jetstream();
    for (let number = from; number <= to; number += 1) await jetStream.publish(on, String(number));
  };
  const consumer = (settings: Partial<ConsumerConfig>) =>
    manager.consumers.add(stream, { durable_name: "svc", ack_policy: AckPolicy.Explicit, ...settings });
  const fault = (source: { check(): Promise<void> }, pattern: RegExp) =>
    eventually(() => expect(source.check()).rejects.toThrow(pattern));

  test("says that the stream is missing and never creates it, and reads it when it is created", async () => {
    const source = bench.source({ servers: url, stream }, intake);
    await source.start();
    await fault(source, new RegExp(`the stream ${stream} does not exist: create it`));
    await manager.streams.add({ name: stream, subjects });
    await send(1, 3);
    await eventually(() => expect(numbers(intake.taken)).toEqual([1, 2, 3]), { timeoutMs: 10_000 });
    await source.check();
  });

  test("tells subject, stream, sequence and time of each message", async () => {
    await manager.streams.add({ name: stream, subjects });
    await send(1, 2);
    await bench.source({ servers: url, stream }, intake).start();
    await eventually(() => expect(intake.taken).toHaveLength(2), { timeoutMs: 10_000 });
    const { time } = await manager.streams.getMessage(stream, { seq: 2 });
    expect(intake.taken[1]?.origin).toEqual({
      "x-nats-subject": subject,
      "x-nats-stream": stream,
      "x-nats-sequence": "2",
      "x-nats-timestamp": time.toISOString(),
    });
    expect(intake.taken[1]?.publishedAt).toBe(time.getTime());
    expect(intake.taken.map(({ streamPlace }) => streamPlace)).toEqual([undefined, undefined]);
  });

  test("identifies messages by their place in the stream if the configuration says so, also when they come again", async () => {
    await manager.streams.add({ name: stream, subjects });
    await consumer({});
    const jetStream = client.jetstream();
    await jetStream.publish(subject, "{}");
    await jetStream.publish(subject, "{}");
    const places = async () => {
      const own = new RecordingIntake();
      const source = bench.source(
        { servers: url, stream, durable: `d${places.calls++}`, idempotencyFrom: "sequence" },
        own,
      );
      await source.start();
      await eventually(() => expect(own.taken).toHaveLength(2), { timeoutMs: 10_000 });
      return own.taken.map(({ streamPlace }) => streamPlace);
    };
    places.calls = 0;
    const first = await places();
    expect(first).toEqual([
      expect.stringMatching(new RegExp(`^${stream}:1:\\d+$`)),
      expect.stringMatching(new RegExp(`^${stream}:2:\\d+$`)),
    ]);
    expect(await places()).toEqual(first);
  });

  test("takes the deletion of a key for a message without body that its place identifies", async () => {
    const bucket = stream.replaceAll(/\W/g, "_");
    const entries = await client.jetstream().views.kv(bucket, { history: 5 });
    await entries.put("lamp.1", "{}");
    await entries.delete("lamp.1");
    await entries.purge("lamp.1");
    await bench.source({ servers: url, stream: `KV_${bucket}` }, intake).start();
    await eventually(() => expect(intake.taken).toHaveLength(1), { timeoutMs: 10_000 });
    await entries.delete("lamp.2");
    await eventually(() => expect(intake.taken).toHaveLength(2), { timeoutMs: 10_000 });
    const [purge, deletion] = intake.taken;
    expect(purge).toMatchObject({ body: null, headers: { "KV-Operation": "PURGE" } });
    expect(deletion).toMatchObject({
      body: null,
      headers: { "KV-Operation": "DEL" },
      origin: { "x-nats-subject": `$KV.${bucket}.lamp.2` },
      streamPlace: expect.stringMatching(`^KV_${bucket}:4:\\d+$`),
    });
    expect(purge?.streamPlace).not.toBe(deletion?.streamPlace);
    await entries.destroy();
  });

  test("says that JetStream is off", async () => {
    await using server = await startNats({ jetStream: false });
    const source = bench.source({ servers: server.url, stream }, intake);
    await source.start();
    await fault(source, /JetStream does not answer: enable it/);
    await source.stop(noSignal());
  });

  test("creates the durable consumer with explicit acknowledgement, its filter and wait, and unlimited deliveries", async () => {
    await manager.streams.add({ name: stream, subjects });
    await send(1, 1);
    await send(2, 2, `${stream}.other`);
    const options = { servers: url, stream, filterSubject: subject, ackWaitMs: 12_345, batchSize: 7 };
    const source = bench.source(options, intake);
    await source.start();
    await eventually(() => expect(numbers(intake.taken)).toEqual([1]));
    expect((await manager.consumers.info(stream, "svc")).config).toMatchObject({
      durable_name: "svc",
      ack_policy: "explicit",
      deliver_policy: "all",
      ack_wait: nanos(12_345),
      max_deliver: -1,
      max_ack_pending: 1000,
      filter_subject: subject,
    });
  });

  test("uses a consumer that exists and loses nothing, and leaves its settings", async () => {
    await manager.streams.add({ name: stream, subjects });
    await send(1, 1);
    await consumer({
      ack_wait: nanos(5000),
      deliver_policy: DeliverPolicy.StartSequence,
      opt_start_seq: 2,
      replay_policy: ReplayPolicy.Original,
      max_ack_pending: 50,
      inactive_threshold: nanos(60_000),
      mem_storage: true,
      max_batch: 3,
      max_expires: nanos(2000),
    });
    await send(2, 11);
    const source = bench.source({ servers: url, stream, ackWaitMs: 30_000 }, intake);
    await source.start();
    await eventually(() => expect(numbers(intake.taken)).toEqual(range(2, 11)));
    await source.check();
    expect((await manager.consumers.info(stream, "svc")).config).toMatchObject({
      ack_wait: nanos(5000),
      max_ack_pending: 50,
    });
  });

  test.each<[string, Partial<ConsumerConfig>, RegExp]>([
    [
      "acknowledges nothing",
      { ack_policy: AckPolicy.None },
      /its acknowledgement policy is none, and explicit is needed/,
    ],
    [
      "acknowledges all before",
      { ack_policy: AckPolicy.All },
      /its acknowledgement policy is all, and explicit is needed/,
    ],
    ["pushes", { deliver_subject: "elsewhere" }, /it is a push consumer/],
    ["leaves bodies out", { headers_only: true }, /headers without bodies/],
    [
      "reads something else",
      { filter_subject: "FILTER.other" },
      /it reads .+\.other, and filterSubject is .+\.created/,
    ],
    [
      "reads something else besides",
      { filter_subjects: ["FILTER.created", "FILTER.other"] },
      /it reads .+\.created, .+\.other, and filterSubject is .+\.created/,
    ],
    ["reads every subject", { filter_subject: ">" }, /it reads >, and filterSubject is .+\.created/],
    [
      "gives messages up",
      { max_deliver: 1 },
      /it gives a message up after 1 deliveries \(max_deliver\), and -1 is needed/,
    ],
    ["has several faults", { max_deliver: 3, headers_only: true }, /without bodies; it gives a message up after 3/],
    ["is paused", { pause_until: "2999-01-01T00:00:00Z" }, /it is paused until 2999-01-01T00:00:00Z; resume it/],
  ])("does not read through a consumer that %s, and says why", async (_what, settings, reason) => {
    await manager.streams.add({ name: stream, subjects });
    const named = (filter: string) => filter.replace("FILTER", stream);
    const { filter_subject = subject, filter_subjects, ...others } = settings;
    const filters = filter_subjects
      ? { filter_subjects: filter_subjects.map(named) }
      : { filter_subject: named(filter_subject) };
    await consumer({ ...others, ...filters });
    await send(1, 3);
    const source = bench.source({ servers: url, stream, filterSubject: subject }, intake);
    await source.start();
    await fault(source, reason);
    await fault(source, /change it \(nats consumer edit\), delete it, or name another durable/);
    expect(intake.offered).toEqual([]);
  });

  test("does not read through a consumer with a filter when the configuration has none, and needs none for >", async () => {
    await manager.streams.add({ name: stream, subjects });
    await consumer({ filter_subject: subject });
    await manager.consumers.add(stream, {
      durable_name: "every",
      ack_policy: AckPolicy.Explicit,
      filter_subject: ">",
    });
    const filtered = bench.source({ servers: url, stream }, intake);
    await filtered.start();
    await fault(filtered, /it reads .+\.created, and filterSubject is not set, which means every subject/);
    await bench.source({ servers: url, stream, durable: "every" }, intake).start();
    await send(1, 1, `${stream}.other`);
    await eventually(() => expect(numbers(intake.taken)).toEqual([1]));
  });

  test("creates a consumer anew that is deleted under way, and continues", async () => {
    await manager.streams.add({ name: stream, subjects });
    const source = bench.source({ servers: url, stream }, intake);
    await source.start();
    await send(1, 3);
    await eventually(() => expect(numbers(intake.taken)).toEqual([1, 2, 3]));
    await manager.consumers.delete(stream, "svc");
    await send(4, 5);
    await eventually(() => expect(new Set(numbers(intake.taken))).toEqual(new Set([1, 2, 3, 4, 5])));
    await source.check();
  });

  test("keeps a long take's messages from being delivered to another replica, the messages that wait behind it too", async () => {
    await manager.streams.add({ name: stream, subjects });
    const settings = { servers: url, stream, ackWaitMs: 400, batchSize: 5 };
    const slow = bench.source(settings, intake);
    intake.hold();
    await slow.start();
    await send(1, 1);
    await eventually(() => intake.running === 1);
    await send(2, 5);
    const other = new RecordingIntake();
    await bench.source(settings, other).start();
    // The server counts an acknowledgement wait from the last sign of life: several of them pass.
    const started = performance.now();
    await eventually(() => performance.now() - started > 2000);
    expect(other.offered).toEqual([]);
    intake.release();
    await eventually(async () => expect((await manager.consumers.info(stream, "svc")).num_ack_pending).toBe(0));
    expect(numbers(intake.taken)).toEqual([1, 2, 3, 4, 5]);
    expect((await manager.consumers.info(stream, "svc")).num_redelivered).toBe(0);
  });

  // Two batches fit in the hand. Eight messages leave the second request open, ten leave none.
  test.each([8, 10])(
    "gives what it fetched and did not take to another replica at once and in order when it stops, of %i",
    async (count) => {
      await manager.streams.add({ name: stream, subjects });
      const settings = { servers: url, stream, ackWaitMs: 60_000, batchSize: 5 };
      const leaving = bench.source(settings, intake);
      intake.hold();
      await leaving.start();
      await send(1, count);
      await eventually(async () => expect((await manager.consumers.info(stream, "svc")).num_ack_pending).toBe(count));
      const stopped = leaving.stop(noSignal());
      intake.release();
      await stopped;
      const taken = numbers(intake.taken);
      expect(taken.length).toBeLessThan(count);
      const next = new RecordingIntake();
      await bench.source(settings, next).start();
      await eventually(async () => {
        const { num_pending, num_ack_pending } = await manager.consumers.info(stream, "svc");
        expect({ num_pending, num_ack_pending }).toEqual({ num_pending: 0, num_ack_pending: 0 });
      });
      expect([...taken, ...numbers(next.taken)]).toEqual(range(1, count));
    },
  );

  test("acknowledges what it took while the connection was broken over the next one, so that nothing comes twice", async () => {
    await using server = await startNats();
    const stopped = await bench.manager(server.url);
    await stopped.streams.add({ name: stream, subjects });
    const source = bench.source({ servers: server.url, stream, ackWaitMs: 60_000 }, intake);
    intake.hold();
    await source.start();
    const producer = (await bench.client(server.url)).jetstream();
    for (let number = 1; number <= 5; number += 1) await producer.publish(subject, String(number));
    await eventually(() => intake.running === 1);
    // A killed server may have forgotten that it delivered the messages.
    await server.stop();
    await fault(source, /./);
    intake.release();
    await server.start();
    const started = await bench.manager(server.url);
    await eventually(async () => {
      const info = await started.consumers.info(stream, "svc");
      expect([info.num_pending, info.num_ack_pending]).toEqual([0, 0]);
    });
    expect(numbers(intake.taken)).toEqual([1, 2, 3, 4, 5]);
    await source.stop(noSignal());
  });

  test("gives what died with a process to the next source at once, in order and before all that is new", async () => {
    await manager.streams.add({ name: stream, subjects });
    // What nobody recalls would come a minute later, behind everything else.
    const settings = { servers: url, stream, ackWaitMs: 60_000, batchSize: 10 };
    const cut = bench.source(settings, intake);
    await cut.start();
    await send(1, 5);
    await eventually(() => expect(intake.taken).toHaveLength(5));
    await eventually(async () => expect((await manager.consumers.info(stream, "svc")).num_ack_pending).toBe(0));
    intake.goDown();
    await send(6, 40);
    await eventually(() => intake.running === 1);
    await eventually(async () =>
      expect((await manager.consumers.info(stream, "svc")).num_ack_pending).toBeGreaterThan(9),
    );
    await cut.stop(AbortSignal.abort(new StoppingError()));
    await send(41, 60);

    const next = new RecordingIntake();
    await bench.source(settings, next).start();
    await eventually(() => expect(next.taken.length).toBeGreaterThanOrEqual(55), { timeoutMs: 10_000 });
    expect(numbers(next.taken)).toEqual(Array.from({ length: 55 }, (_, n) => 6 + n));
    expect(numbers(intake.taken)).toEqual([1, 2, 3, 4, 5]);
  });

  test("recalls what a broken connection swallowed, and nothing that it has at hand", async () => {
    await manager.streams.add({ name: stream, subjects });
    const { host, port } = await sharedNats();
    const proxy = await startTcpProxy({ host, port });
    await using _ = { [Symbol.asyncDispose]: () => proxy.close() };
    const source = bench.source(
      { servers: `127.0.0.1:${proxy.port}`, stream, ackWaitMs: 60_000, batchSize: 10 },
      intake,
    );
    await source.start();
    await eventually(async () => expect((await manager.consumers.info(stream, "svc")).num_waiting).toBe(1));
    intake.hold();
    await send(1, 3);
    await eventually(() => intake.running === 1);
    // Four more are delivered, to somebody who forgets them: as if they had been lost on the way.
    const pulled = await (await client.jetstream().consumers.get(stream, "svc")).fetch({
      max_messages: 4,
      expires: 5000,
    });
    await send(4, 30);
    const swallowed: number[] = [];
    for await (const message of pulled) swallowed.push(Number(message.string()));
    expect(swallowed.length).toBeGreaterThan(0);
    proxy.setMode("cut");
    await fault(source, /./);
    proxy.setMode("open");
    await eventually(() => source.check(), { timeoutMs: 10_000 });
    intake.release();

    await eventually(() => expect(intake.taken.length).toBeGreaterThanOrEqual(30), { timeoutMs: 10_000 });
    expect(new Set(numbers(intake.taken))).toEqual(new Set(Array.from({ length: 30 }, (_, n) => n + 1)));
    expect(intake.taken).toHaveLength(30);
    await source.stop(noSignal());
  });

  test("recalls nothing while another replica reads", async () => {
    await manager.streams.add({ name: stream, subjects });
    const settings = { servers: url, stream, ackWaitMs: 60_000, batchSize: 5 };
    const busy = new RecordingIntake();
    await bench.source(settings, busy).start();
    busy.hold();
    await send(1, 3);
    await eventually(() => busy.running === 1);
    await eventually(async () => expect((await manager.consumers.info(stream, "svc")).num_waiting).toBe(1));
    const second = bench.source(settings, intake);
    await second.start();
    await eventually(() => second.check());
    busy.release();
    await send(4, 20);
    await eventually(() => expect(intake.taken.length + busy.taken.length).toBeGreaterThanOrEqual(20));
    expect(numbers([...intake.taken, ...busy.taken]).toSorted((a, b) => a - b)).toEqual(
      Array.from({ length: 20 }, (_, n) => n + 1),
    );
  });

  test("hands over headers that the client itself cannot read: names beyond ASCII, bytes that are no UTF-8, several values", async () => {
    await manager.streams.add({ name: stream, subjects });
    await bench.source({ servers: url, stream }, intake).start();
    const block = Buffer.concat([
      Buffer.from("NATS/1.0\r\nNats-Msg-Id: 7\r\nGröße: voilà\r\nna me:  x \r\nX-A: 1\r\nX-A: 2\r\nx-a: 3\r\nx-key: "),
      Buffer.from([0xe9, 0x31]),
      Buffer.from("\r\nx-empty:\r\n__proto__: y\r\nno colon\r\n\r\n"),
    ]);
    client.publish(subject, "{}", { headers: { encode: () => block } as never });
    await eventually(() => expect(intake.taken).toHaveLength(1));
    expect(Object.entries(intake.taken[0]?.headers ?? {})).toEqual([
      ["Nats-Msg-Id", "7"],
      ["Größe", "voilà"],
      ["na me", "x"],
      ["X-A", "1, 2"],
      ["x-a", "3"],
      ["x-key", Buffer.from([0xe9, 0x31]).toString("base64")],
      ["x-empty", ""],
      ["__proto__", "y"],
    ]);
  });
});

function numbers(messages: readonly BrokerMessage[]): number[] {
  return messages.map(({ body }) => Number(body));
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, index) => from + index);
}

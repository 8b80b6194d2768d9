import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import { describeWith, sharedNats } from "../support/brokers/index.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { RecordingIntake } from "../support/recordingIntake.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcpProxy.ts";
import { failure, NatsBench, noSignal, publish, uniqueStream } from "./natsSetup.ts";

/** A connection on which nothing arrives any more has to be found within 20 s; the rest is for a busy machine. */
const FOUND_MS = 20_000 + 2000;

describeWith(["nats"], "a NATS server that hangs", () => {
  let bench: NatsBench;
  let url: string;
  let proxy: TcpProxy;
  let servers: string;

  beforeEach(async () => {
    bench = new NatsBench();
    const address = await sharedNats();
    url = address.url;
    proxy = await startTcpProxy(address);
    servers = `127.0.0.1:${proxy.port}`;
  });
  afterEach(async () => {
    await bench.close();
    await proxy.close();
  });
  failOnLeaks();

  test(
    "is found by an idle source, and by a destination with more to send than the connection holds, and left when it serves again",
    async () => {
      const { stream, subject, subjects } = uniqueStream();
      const manager = await bench.manager(url);
      await manager.streams.add({ name: stream, subjects });
      const intake = new RecordingIntake();
      const source = bench.source({ servers, stream }, intake);
      await source.start();
      await eventually(() => source.check());
      const destination = bench.destination({ servers, timeoutMs: 60_000 });
      await publish(destination, subject, { body: "1" });
      await eventually(() => intake.taken.length === 1);

      proxy.setMode("held");
      const large = JSON.stringify("x".repeat(900_000));
      const errors = await Promise.all([
        ...Array.from({ length: 20 }, () => failure(publish(destination, subject, { body: large }))),
        eventually(() => expect(source.check()).rejects.toThrow(/no longer answers/), { timeoutMs: FOUND_MS }),
      ]);
      for (const error of errors.slice(0, -1)) {
        expect(error).toMatchObject({ code: "connection_lost", message: expect.stringMatching(/no longer answers/) });
      }
      proxy.setMode("open");
      await eventually(() => publish(destination, subject, { body: "2" }), { timeoutMs: 10_000 });
      await eventually(() => expect(intake.taken.map(({ body }) => String(body))).toContain("2"), {
        timeoutMs: 10_000,
      });
      await manager.streams.delete(stream);
    },
    FOUND_MS + 30_000,
  );

  describe("while nobody has found out yet", () => {
    test("a source stops gracefully within a few seconds, and gives back nothing that it holds", async () => {
      const { stream, subject, subjects } = uniqueStream();
      const manager = await bench.manager(url);
      await manager.streams.add({ name: stream, subjects });
      const intake = new RecordingIntake();
      const source = bench.source({ servers, stream, batchSize: 1 }, intake);
      await source.start();
      intake.hold();
      await publish(bench.destination({ servers: url }), subject);
      await eventually(() => intake.running === 1);
      proxy.setMode("held");
      const stopped = source.stop(noSignal());
      intake.release();
      await stopped;
      expect(intake.taken).toHaveLength(1);
      expect((await manager.consumers.info(stream, "svc")).num_ack_pending).toBe(1);
      await manager.streams.delete(stream);
    }, 15_000);
  });
});

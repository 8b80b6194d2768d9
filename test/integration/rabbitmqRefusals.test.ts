import { expect, test } from "@jest/globals";
import type { Destination } from "../../src/ports/destination.ts";
import { message } from "../conformance/destination/bench.ts";
import { describeWith, ownServerForBlock, START_TIMEOUT_MS, startRabbitmq, unique } from "../support/brokers/index.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { withChannel } from "../support/rabbitmqClient.ts";
import { recordingLog } from "../support/recorders.ts";
import { RecordingIntake } from "../support/recordingIntake.ts";
import { stopWithin } from "../support/stopWithin.ts";
import { destinationAt, drain, failure, rabbitmqBench, sourceAt } from "./rabbitmqSetup.ts";

const PASSWORD = "limited-secret";
const PATIENCE = { timeoutMs: 10_000 };

describeWith(["rabbitmq"], "a RabbitMQ server that refuses", () => {
  const server = ownServerForBlock(startRabbitmq);
  const { later } = rabbitmqBench(server);
  failOnLeaks();

  /** A user with these permissions, patterns of names. */
  const limitedUser = async (permissions: Permissions) => {
    const user = unique("limited");
    const allow = ({ configure, write, read }: Permissions) =>
      server().evaluate(
        `ok = rabbit_auth_backend_internal:set_permissions(${[user, "/", configure, write, read, "tests"].map(binary)}).`,
      );
    await server().evaluate(`ok = rabbit_auth_backend_internal:add_user(${[user, PASSWORD, "tests"].map(binary)}).`);
    await allow(permissions);
    const { host, port } = server();
    return { user, allow, url: `amqp://${user}:${PASSWORD}@${host}:${port}` };
  };
  const open = (...args: Parameters<typeof destinationAt>): Destination => {
    const destination = destinationAt(...args);
    later(() => destination.close());
    return destination;
  };
  const publish = (destination: Destination, exchange: string, body = "{}"): Promise<void> =>
    destination.publish(message({ address: exchange, routingKey: "new", body }), new AbortController().signal);
  const start = async (...[url, queue, intake, options]: Parameters<typeof sourceAt>) => {
    const source = sourceAt(url, queue, intake, options);
    later(() => stopWithin(5000, source));
    await source.start();
    return source;
  };
  /** An exchange with a queue of the same name behind it. */
  const bound = async (prefix: string): Promise<string> => {
    const name = unique(prefix);
    await withChannel(server().url, async (channel) => {
      await channel.assertExchange(name, "topic", { durable: true });
      await channel.assertQueue(name, { durable: true });
      await channel.bindQueue(name, name, "#");
    });
    return name;
  };
  const bodies = async (queue: string) => (await drain(server().url, queue)).map(({ content }) => content.toString());

  test("fails what goes to an exchange that the user may not declare, names both, and leaves the others alone", async () => {
    const { user, url, allow } = await limitedUser({ configure: "^mine-", write: ".*", read: "^$" });
    const [mine, theirs] = [await bound("mine"), await bound("theirs")];
    const { log, lines } = recordingLog();
    const destination = open(url, { log });
    const beside = Array.from({ length: 20 }, (_, n) => publish(destination, mine, String(n)));
    const refused = Array.from({ length: 3 }, () => failure(publish(destination, theirs)));
    for (const error of await Promise.all(refused)) {
      expect(error.code).toBe("access_refused");
      expect(error.message).toMatch(
        new RegExp(`"${theirs}" of .* cannot be declared: give the user "${user}" the permission to configure it`),
      );
      expect(error.stack).not.toContain(PASSWORD);
    }
    await Promise.all(beside);
    expect(await bodies(mine)).toEqual(Array.from({ length: 20 }, (_, n) => String(n)));
    expect(await bodies(theirs)).toEqual([]);
    expect(lines.map(({ message: text }) => text)).toEqual(["connected to the broker"]);
    await allow({ configure: ".*", write: ".*", read: "^$" });
    await publish(destination, theirs, "allowed");
    expect(await bodies(theirs)).toEqual(["allowed"]);
  });

  test("without declareExchange uses any exchange, without the right to configure it, and makes none", async () => {
    const { url } = await limitedUser({ configure: "^$", write: ".*", read: "^$" });
    const theirs = unique("theirs");
    await withChannel(server().url, async (channel) => {
      await channel.assertExchange(theirs, "headers", {
        durable: false,
        autoDelete: true,
        alternateExchange: "amq.fanout",
      });
      await channel.assertQueue(theirs, { durable: true });
      await channel.bindQueue(theirs, theirs, "");
    });
    const destination = open(url, { declareExchange: false });
    await publish(destination, theirs, "unchanged");
    expect(await bodies(theirs)).toEqual(["unchanged"]);
    expect(await failure(publish(destination, unique("missing")))).toMatchObject({
      code: "not_found",
      message: expect.stringContaining("declareExchange is false"),
    });
    // A destination that declares it says what to do, whether it may or not.
    for (const each of [url, server().url])
      expect((await failure(publish(open(each), theirs))).message).toContain("set declareExchange to false");
  });

  test("fails what goes to an exchange that the user may not write to, names both, and leaves the others alone", async () => {
    const { user, url, allow } = await limitedUser({ configure: ".*", write: "^mine-", read: "^$" });
    const [mine, theirs] = [await bound("mine"), await bound("theirs")];
    const destination = open(url);
    const beside = Array.from({ length: 20 }, (_, n) => publish(destination, mine, String(n)));
    const error = await failure(publish(destination, theirs));
    expect(error.code).toBe("access_refused");
    expect(error.message).toMatch(
      new RegExp(`"${theirs}" of .*: give the user "${user}" the permission to write to it`),
    );
    await Promise.all(beside);
    expect(await bodies(mine)).toHaveLength(20);
    await allow({ configure: ".*", write: ".*", read: "^$" });
    await publish(destination, theirs, "allowed");
    expect(await bodies(theirs)).toEqual(["allowed"]);
  });

  test.each([
    [
      "declare",
      { configure: "^$", write: "^$", read: ".*" },
      "be declared: give the user USER the permission to configure",
    ],
    [
      "read",
      { configure: ".*", write: "^$", read: "^$" },
      "be consumed: .* the user USER needs the permission to read",
    ],
  ])(
    "says that a source's user may not %s its queue, and consumes when it may",
    async (_what, permissions, expected) => {
      const { user, url, allow } = await limitedUser(permissions);
      const queue = await bound("orders");
      const intake = new RecordingIntake();
      const { log, lines } = recordingLog();
      const source = await start(url, queue, intake, { declareQueue: true, log });
      const said = new RegExp(`the queue "${queue}" of .* cannot ${expected.replace("USER", `"${user}"`)} it`);
      await eventually(() => expect(source.check()).rejects.toThrow(said), PATIENCE);
      await allow({ configure: ".*", write: "^$", read: ".*" });
      await eventually(() => source.check(), PATIENCE);
      await publish(open(server().url), queue, "1");
      await eventually(() => expect(intake.taken.map(({ body }) => String(body))).toEqual(["1"]), PATIENCE);
      expect(JSON.stringify(lines)).not.toContain(PASSWORD);
    },
  );

  test(
    "holds publishes back while it is low on memory, says so when their time is over, and takes what waits afterwards",
    async () => {
      const exchange = await bound("orders");
      const setLimit = (bytes: string) =>
        server().evaluate(`vm_memory_monitor:set_vm_memory_high_watermark({absolute, "${bytes}"}).`);
      const { log, lines } = recordingLog();
      /** Waits until both connections have logged it. */
      const logged = (text: string) =>
        eventually(() => expect(lines.filter(({ message: line }) => line === text)).toHaveLength(2), PATIENCE);
      const hasty = open(server().url, { timeoutMs: 3000, log });
      const patient = open(server().url, { log });
      await publish(hasty, exchange, "before");
      await publish(patient, exchange, "before");
      later(() => setLimit("2GB"));
      await setLimit("1MB");
      // A connection hears of the alarm when it sends its next message; the broker reads that message to its end after the alarm.
      const late = Promise.allSettled([publish(hasty, exchange, "late")]);
      const first = publish(patient, exchange, "first");
      await logged("RabbitMQ blocks publishers");
      const errors = await Promise.all(["1", "2"].map((body) => failure(publish(hasty, exchange, body))));
      for (const error of errors) {
        expect(error.code).toBe("blocked");
        expect(error.message).toMatch(/took longer than 3000 ms: RabbitMQ blocks publishers \(low on memory\); free/);
      }
      const second = publish(patient, exchange, "second");
      await setLimit("2GB");
      await Promise.all([first, second, late]);
      await logged("RabbitMQ takes messages again");
      await publish(hasty, exchange, "again");
      // Nothing that nobody waited for any more, but for what was on its way already.
      const stored = (await bodies(exchange)).filter((body) => body !== "late");
      expect(stored).toEqual(["before", "before", "first", "second", "again"]);
    },
    START_TIMEOUT_MS,
  );
});

/** Text that holds no quotes, in Erlang. */
const binary = (text: string) => `<<"${text}">>`;

interface Permissions {
  readonly configure: string;
  readonly write: string;
  readonly read: string;
}

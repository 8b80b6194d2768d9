import { beforeEach, expect, test } from "@jest/globals";
import { StoppingError } from "../../src/model/errors.ts";
import type { Destination, OutboundMessage } from "../../src/ports/destination.ts";
import { message } from "../conformance/destination/bench.ts";
import { describeWith, serverForBlock, sharedRabbitmq, unique } from "../support/brokers/index.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { withChannel } from "../support/rabbitmqClient.ts";
import { recordingLog } from "../support/recorders.ts";
import { within } from "../support/within.ts";
import { destinationAt, drain, failure, rabbitmqBench } from "./rabbitmqSetup.ts";

describeWith(["rabbitmq"], "a RabbitMQ destination", () => {
  const server = serverForBlock(sharedRabbitmq);
  const { later, proxy: startProxy } = rabbitmqBench(server);
  let exchange: string;
  let queue: string;

  beforeEach(async () => {
    exchange = unique("exchange");
    queue = unique("queue");
    await withChannel(server().url, async (channel) => {
      await channel.assertExchange(exchange, "topic", { durable: true });
      await channel.assertQueue(queue, { durable: true });
      await channel.bindQueue(queue, exchange, "orders.#");
    });
    later(() =>
      withChannel(server().url, async (channel) => {
        await channel.deleteQueue(queue);
        await channel.deleteExchange(exchange);
      }),
    );
  });
  failOnLeaks();

  const open = (...args: Parameters<typeof destinationAt>): Destination => {
    const destination = destinationAt(...args);
    later(() => destination.close());
    return destination;
  };
  const publish = (destination: Destination, overrides: Partial<OutboundMessage> = {}): Promise<void> =>
    destination.publish(
      message({ address: exchange, routingKey: "orders.created", ...overrides }),
      new AbortController().signal,
    );
  const arrived = () => drain(server().url, queue);
  const bodies = async (): Promise<string[]> => (await arrived()).map(({ content }) => content.toString());

  test.each([
    ["persistent", 2],
    ["transient", 1],
  ] as const)("sends %s messages with their properties", async (deliveryMode, mode) => {
    const before = Math.floor(Date.now() / 1000);
    const sent = message({
      address: exchange,
      routingKey: "orders.created",
      headers: { "content-type": "application/json", "x-correlation-id": "c-1", "X-Tenant": "blue" },
    });
    await open(server().url, { deliveryMode }).publish(sent, new AbortController().signal);
    const [got] = await arrived();
    expect(got?.properties).toMatchObject({
      deliveryMode: mode,
      messageId: sent.id,
      correlationId: "c-1",
      contentType: "application/json",
      contentEncoding: "utf-8",
      headers: sent.headers,
    });
    expect(got?.properties.timestamp).toBeGreaterThanOrEqual(before);
    expect(got?.fields.routingKey).toBe("orders.created");
  });

  test("keeps the order of more than the connection buffers, and lets go what is aborted meanwhile", async () => {
    const destination = open(server().url);
    await publish(destination, { body: "first" });
    const pad = "x".repeat(300_000);
    const controller = new AbortController();
    const sent = Array.from({ length: 120 }, (_, n) =>
      destination.publish(
        message({ address: exchange, routingKey: "orders.created", body: `${n} ${pad}` }),
        n === 119 ? controller.signal : new AbortController().signal,
      ),
    );
    const reason = new StoppingError();
    controller.abort(reason);
    await expect(sent.at(-1)).rejects.toBe(reason);
    await Promise.all(sent.slice(0, -1));
    const numbers = (await bodies()).map((body) => body.split(" ")[0]);
    expect(numbers).toEqual(["first", ...Array.from({ length: 119 }, (_, n) => String(n))]);
  });

  test("declares an exchange that does not exist, durable and of the configured type", async () => {
    const name = unique("declared");
    const error = await failure(publish(open(server().url, { exchangeType: "fanout" }), { address: name }));
    expect(error.code).toBe("unroutable");
    // It has to be the same: otherwise RabbitMQ refuses this.
    await withChannel(server().url, async (channel) => {
      await channel.assertExchange(name, "fanout", { durable: true });
      await channel.deleteExchange(name);
    });
  });

  test("fails an unroutable message with what to check, and no other beside it", async () => {
    const destination = open(server().url);
    const id = message().id;
    // The same row twice at once, as after a publish whose time was over: each gets its own answer.
    const results = await Promise.allSettled([
      publish(destination, { id, body: "1" }),
      publish(destination, { id, body: "2", routingKey: "nobody.asked" }),
      publish(destination, { id, body: "3" }),
      publish(destination, { body: "4", routingKey: null }),
    ]);
    expect(results.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled", "rejected"]);
    expect(results[1]).toMatchObject({
      reason: {
        code: "unroutable",
        message: expect.stringMatching(new RegExp(`"${exchange}" of amqp://.*"nobody\\.asked" \\(NO_ROUTE\\): check`)),
      },
    });
    expect(results[3]).toMatchObject({ reason: { message: expect.stringContaining('routing key ""') } });
    expect(await bodies()).toEqual(["1", "3"]);
  });

  test("fails a message that a full queue refuses", async () => {
    const full = unique("full");
    await withChannel(server().url, async (channel) => {
      await channel.assertQueue(full, { maxLength: 1, overflow: "reject-publish", autoDelete: false });
      await channel.bindQueue(full, exchange, "full");
    });
    later(() => withChannel(server().url, (channel) => channel.deleteQueue(full)));
    const destination = open(server().url);
    await publish(destination, { routingKey: "full" });
    const error = await failure(publish(destination, { routingKey: "full" }));
    expect(error).toMatchObject({ code: "nacked", message: expect.stringMatching(/reject-publish/) });
    await publish(destination);
  });

  test("fails only what goes to an exchange of another type, and says what to do", async () => {
    const other = unique("other");
    await withChannel(server().url, (channel) => channel.assertExchange(other, "direct", { durable: true }));
    later(() => withChannel(server().url, (channel) => channel.deleteExchange(other)));
    const destination = open(server().url);
    const beside = Array.from({ length: 50 }, () => publish(destination));
    const error = await failure(publish(destination, { address: other }));
    expect(error.code).toBe("precondition_failed");
    expect(error.message).toMatch(
      new RegExp(`"${other}" of .* exists with other properties than type topic and durable: set declareExchange`),
    );
    await Promise.all(beside);
    await withChannel(server().url, (channel) => channel.deleteExchange(other));
    expect((await failure(publish(destination, { address: other }))).code).toBe("unroutable");
  });

  test("fails what is in flight to an exchange that was deleted, declares it again, and leaves the others alone", async () => {
    const gone = unique("gone");
    const destination = open(server().url);
    expect((await failure(publish(destination, { address: gone }))).code).toBe("unroutable");
    await withChannel(server().url, (channel) => channel.deleteExchange(gone));
    const beside = Array.from({ length: 20 }, () => publish(destination));
    const lost = Array.from({ length: 20 }, () => failure(publish(destination, { address: gone })));
    for (const error of await Promise.all(lost))
      expect(error).toMatchObject({ code: "not_found", message: expect.stringContaining(`"${gone}" of`) });
    await Promise.all(beside);
    expect((await failure(publish(destination, { address: gone }))).code).toBe("unroutable");
    await withChannel(server().url, async (channel) => {
      await channel.checkExchange(gone);
      await channel.deleteExchange(gone);
    });
  });

  test("publishes to the broker's own exchanges without declaring them, and says when one is missing or closed to it", async () => {
    await withChannel(server().url, (channel) => channel.bindQueue(queue, "amq.topic", queue));
    const destination = open(server().url, { exchangeType: "fanout" });
    await publish(destination, { address: "amq.topic", routingKey: queue });
    expect(await failure(publish(destination, { address: "amq.missing" }))).toMatchObject({
      code: "not_found",
      message: expect.stringContaining('its name begins with "amq."'),
    });
    expect(await failure(publish(destination, { address: "amq.rabbitmq.trace" }))).toMatchObject({
      code: "access_refused",
      message: expect.stringContaining("amq.rabbitmq.trace"),
    });
    await publish(destination, { address: "amq.topic", routingKey: queue });
    expect(await arrived()).toHaveLength(2);
  });

  test("closes the channels of idle exchanges, so that their number has no end", async () => {
    const destination = open(`${server().url}?channel_max=70`);
    const names = Array.from({ length: 100 }, (_, n) => `${unique("many")}-${n}`);
    later(() =>
      withChannel(server().url, async (channel) => {
        for (const name of names) await channel.deleteExchange(name);
      }),
    );
    for (const name of names) expect((await failure(publish(destination, { address: name }))).code).toBe("unroutable");
  });

  test.each([
    ["names and keys that are too long for AMQP", { routingKey: "k".repeat(256) }, "message_invalid"],
    ["an exchange name that is too long for AMQP", { address: "é".repeat(128) }, "message_invalid"],
    ["a header that RabbitMQ would take for routing keys", { headers: { CC: "a" } }, "message_invalid"],
    ["headers larger than the client can encode", { headers: { big: "x".repeat(66_000) } }, "message_too_large"],
  ])("refuses %s, and publishes the next", async (_what, overrides, code) => {
    const destination = open(server().url);
    await publish(destination, { body: "1" });
    const [error] = await Promise.all([failure(publish(destination, overrides)), publish(destination, { body: "2" })]);
    expect(error.code).toBe(code);
    expect(await bodies()).toEqual(["1", "2"]);
  });

  test("refuses headers larger than a small frame, and delivers headers that just fit", async () => {
    const { log, lines } = recordingLog();
    const destination = open(`${server().url}?frame_max=4096`, { log });
    const sizes = Array.from({ length: 400 }, (_, n) => 3700 + n);
    const results = await Promise.allSettled(
      sizes.map((size) => publish(destination, { body: "x".repeat(10_000), headers: { pad: "x".repeat(size) } })),
    );
    const delivered = results.filter(({ status }) => status === "fulfilled").length;
    expect(delivered).toBeGreaterThan(0);
    expect(results.slice(delivered).map((result) => (result.status === "rejected" ? result.reason.code : ""))).toEqual(
      Array(sizes.length - delivered).fill("message_too_large"),
    );
    expect(sizes.length - delivered).toBeGreaterThan(0);
    expect(await arrived()).toHaveLength(delivered);
    expect(lines.filter(({ level }) => level !== "info")).toEqual([]);
  });

  test("gives up a connection on which nothing comes for two heartbeats, and publishes on another one", async () => {
    const proxy = await startProxy();
    const destination = open(`${proxy.url}?heartbeat=1`);
    await publish(destination, { body: "1" });
    proxy.setMode("held");
    const error = await failure(publish(destination, { body: "2" }));
    expect(error).toMatchObject({ code: "connection_lost", message: expect.stringContaining("two heartbeats") });
    proxy.setMode("open");
    await eventually(() => publish(destination, { body: "3" }));
    expect(await bodies()).toContain("3");
  });

  test("closes in a few seconds when the broker does not answer any more", async () => {
    const proxy = await startProxy();
    const destination = open(proxy.url);
    await publish(destination);
    proxy.setMode("held");
    const lost = failure(publish(destination));
    await within(5000, "close", destination.close());
    expect((await lost).code).toBe("closed");
    expect((await failure(publish(destination))).code).toBe("closed");
  });

  test("names the virtual host that does not exist", async () => {
    const error = await failure(publish(open(`${server().url}/no%2Fsuch`)));
    expect(error).toMatchObject({ code: "vhost", message: expect.stringContaining('virtual host "no/such"') });
  });

  test("refuses to publish with a URL that is no AMQP URI, and shows nothing of it", async () => {
    const { log, lines } = recordingLog();
    const destination = open("file:/run/secrets/hunter2", { log });
    const error = await failure(publish(destination));
    expect(error.code).toBe("url_invalid");
    expect(lines).toHaveLength(1);
    expect(`${error.stack}${JSON.stringify(lines)}`).not.toContain("hunter2");
  });
});

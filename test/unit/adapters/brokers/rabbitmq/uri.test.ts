import { inspect } from "node:util";
import { describe, expect, test } from "@jest/globals";
import { RabbitmqFault } from "../../../../../src/adapters/brokers/rabbitmq/fault.ts";
import { parseAmqpUri } from "../../../../../src/adapters/brokers/rabbitmq/uri.ts";

describe("an AMQP URI", () => {
  test("is read with its credentials, port and virtual host", () => {
    const target = parseAmqpUri("amqps://svc:secret@broker.example.com:5999/orders");
    expect(target.options).toMatchObject({
      protocol: "amqps",
      hostname: "broker.example.com",
      port: 5999,
      username: "svc",
      password: "secret",
    });
    expect(target).toMatchObject({ vhost: "orders", user: "svc", name: "amqps://broker.example.com:5999/orders" });
  });

  test.each([
    ["amqp://broker", 5672, "amqp://broker:5672/"],
    ["amqps://broker/", 5671, "amqps://broker:5671/"],
  ])("%s has the defaults of RabbitMQ", (text, port, name) => {
    const target = parseAmqpUri(text);
    expect(target.options).toMatchObject({ port, username: "guest", password: "guest", heartbeat: 10 });
    expect(target).toMatchObject({ name, vhost: "/", user: "guest", connectTimeoutMs: 10_000 });
  });

  test("is decoded as UTF-8: user, password and virtual host", () => {
    const target = parseAmqpUri("amqp://s%C3%BC%40x:p%2Fw%3F%E2%82%AC@broker/%2Forders%20%C3%BC");
    expect(target.options).toMatchObject({ username: "sü@x", password: "p/w?€" });
    expect(target.vhost).toBe("/orders ü");
  });

  test("keeps a user without a password, and the address of an IPv6 host", () => {
    const { options, name } = parseAmqpUri("amqp://svc@[::1]:5673");
    expect(options).toMatchObject({ username: "svc", password: "", hostname: "::1", port: 5673 });
    expect(name).toBe("amqp://[::1]:5673/");
  });

  test("takes its parameters in the spelling of every client", () => {
    const snake = parseAmqpUri(
      "amqp://broker?heartbeat=30&connection_timeout=2000&frame_max=8192&channel_max=100&cacertfile=/ca.pem&other=1",
    );
    const camel = parseAmqpUri("amqp://broker?heartbeat=30&connectionTimeout=2000&frameMax=8192&channelMax=100");
    for (const target of [snake, camel]) {
      expect(target.options).toMatchObject({ heartbeat: 30, frameMax: 8192, channelMax: 100 });
      expect(target.connectTimeoutMs).toBe(2000);
    }
  });

  test.each([
    ["nothing", ""],
    ["no URL", "svc:hunter2@broker"],
    ["another scheme", "file:/run/secrets/hunter2"],
    ["no host", "amqp:///hunter2"],
    ["a bare slash in the password", "amqp://svc:84/hunter2@broker/orders"],
    ["a bare question mark in the password", "amqp://svc:84?hunter2@broker/orders"],
    ["a bare hash in the password", "amqp://svc:84#hunter2@broker/orders"],
    ["a bare percent sign in the password", "amqp://svc:hunter2%@broker"],
    ["bytes that are no UTF-8 in the virtual host", "amqp://svc:hunter2@broker/%ff"],
    ["a parameter that is no number", "amqp://svc:hunter2@broker?heartbeat=hunter2"],
    ["a parameter out of its range", "amqp://svc:hunter2@broker?frame_max=100"],
  ])("with %s is refused, and nothing of it is shown", (_what, text) => {
    let thrown: unknown;
    try {
      parseAmqpUri(text);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(RabbitmqFault);
    expect(thrown).toMatchObject({ code: "url_invalid" });
    expect(inspect(thrown, { depth: 5, showHidden: true })).not.toContain("hunter2");
  });
});

import { describe, expect, test } from "@jest/globals";
import { checkShortString, envelopeOf } from "../../../../../src/adapters/destinations/rabbitmq/message.ts";
import { message } from "../../../../conformance/destination/bench.ts";

const NOW = Date.UTC(2024, 0, 1, 0, 0, 0, 999);

describe("the AMQP properties of a message", () => {
  test("carry its id, time in seconds, headers, content type and correlation id", () => {
    const sent = message({
      headers: { "Content-Type": "application/json", "X-Correlation-Id": "c-1", "x-tenant": "ü" },
    });
    expect(envelopeOf(sent, true, NOW).options).toEqual({
      headers: sent.headers,
      messageId: sent.id,
      timestamp: Date.UTC(2024, 0, 1) / 1000,
      persistent: true,
      mandatory: true,
      contentEncoding: "utf-8",
      contentType: "application/json",
      correlationId: "c-1",
    });
  });

  test("are again what an AMQP source has made headers of, and not headers as well", () => {
    const { options, bytes } = envelopeOf(
      message({
        headers: {
          "X-AMQP-Type": "created",
          "x-amqp-app-id": "shop",
          "x-amqp-priority": "7",
          type: "created",
          "app-id": "other",
        },
      }),
      true,
      NOW,
    );
    expect(options).toMatchObject({ type: "created", appId: "shop", priority: 7, headers: { "app-id": "other" } });
    expect(Object.keys(options.headers).sort()).toEqual(["app-id", "content-type", "x-message-id"]);
    expect(bytes - envelopeOf(message({ headers: { "app-id": "other" } }), true, NOW).bytes).toBe(8 + 5 + 1);
  });

  test.each(["256", "-1", "high", ""])("leave the priority %j, which is none, among the headers", (priority) => {
    const { options } = envelopeOf(message({ headers: { "x-amqp-priority": priority } }), true, NOW);
    expect(options.priority).toBeUndefined();
    expect(options.headers).toMatchObject({ "x-amqp-priority": priority });
  });

  test("tell the broker when it need not keep the message", () => {
    expect(envelopeOf(message(), false, NOW).options.persistent).toBe(false);
  });

  test("leave out a content type that is too long for one, whose header stays", () => {
    const sent = message({ headers: { "content-type": `text/${"x".repeat(300)}` } });
    const { options } = envelopeOf(sent, true, NOW);
    expect(options.contentType).toBeUndefined();
    expect(options.headers).toBe(sent.headers);
  });

  test("grow with every header by what it takes on the wire", () => {
    const bytes = (headers: Record<string, string>) => envelopeOf(message({ headers }), true, NOW).bytes;
    // Length of the name, name, type, length of the value, value.
    expect(bytes({ "x-city": "Zürich" }) - bytes({})).toBe(1 + 6 + 1 + 4 + 7);
  });

  test.each(["CC", "BCC"])("refuse the header %s, which RabbitMQ takes for routing keys", (name) => {
    expect(() => envelopeOf(message({ headers: { [name]: "a" } }), true, NOW)).toThrow(/further routing keys/);
  });

  test("refuse a name that is too long", () => {
    expect(() => envelopeOf(message({ headers: { ["é".repeat(128)]: "a" } }), true, NOW)).toThrow(/256 bytes.*255/);
    expect(() => checkShortString("the routing key", "k".repeat(256))).toThrow(/the routing key has 256 bytes/);
    expect(() => checkShortString("the routing key", "k".repeat(255))).not.toThrow();
  });
});

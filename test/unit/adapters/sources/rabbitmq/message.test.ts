import { describe, expect, test } from "@jest/globals";
import type { ConsumeMessage } from "amqplib";
import { brokerMessageOf } from "../../../../../src/adapters/sources/rabbitmq/index.ts";

describe("a delivery", () => {
  test("keeps its body, message id and correlation id", () => {
    const body = Buffer.from([0, 255]);
    const message = brokerMessageOf(delivery({ messageId: "m-1", correlationId: "c-1" }, body));
    expect(message).toMatchObject({ body, headers: {}, messageId: "m-1", correlationId: "c-1" });
  });

  test("has neither id when the property is empty or missing", () => {
    expect(brokerMessageOf(delivery({ messageId: "" }))).toMatchObject({
      messageId: undefined,
      correlationId: undefined,
    });
  });

  test("gives every header as text", () => {
    const headers = {
      "X-Text": "Zürich",
      number: 42,
      real: 1.5,
      truth: false,
      bytes: Buffer.from("text"),
      binary: Buffer.from([0xff]),
      time: new Date("2024-01-01"),
      "late time": 2 ** 60,
      decimal: "0.05",
      nothing: null,
      list: [1, Buffer.from("a"), new Date(0)],
      table: { inner: { deep: Buffer.from("b") } },
    };
    expect(brokerMessageOf(delivery({ headers })).headers).toEqual({
      "X-Text": "Zürich",
      number: "42",
      real: "1.5",
      truth: "false",
      bytes: "text",
      binary: "/w==",
      time: "2024-01-01T00:00:00.000Z",
      "late time": String(2 ** 60),
      decimal: "0.05",
      list: '[1,"a","1970-01-01T00:00:00.000Z"]',
      table: '{"inner":{"deep":"b"}}',
    });
  });

  test("gives properties as headers if there is no header of the name in any letter case", () => {
    const properties = {
      contentType: "application/json",
      contentEncoding: "utf-8",
      type: "order.created",
      appId: "shop",
      replyTo: "answers",
      timestamp: 1704067200,
    };
    const named = { "Content-Type": "text/plain", TIMESTAMP: "today" };
    expect(brokerMessageOf(delivery({ ...properties, headers: named })).headers).toEqual({
      ...named,
      "content-encoding": "utf-8",
      type: "order.created",
      "app-id": "shop",
      "reply-to": "answers",
    });
    expect(brokerMessageOf(delivery(properties)).headers).toMatchObject({
      "content-type": "application/json",
      timestamp: "2024-01-01T00:00:00.000Z",
    });
    expect(brokerMessageOf(delivery(properties)).publishedAt).toBe(Date.UTC(2024));
    expect(brokerMessageOf(delivery({})).publishedAt).toBeUndefined();
  });

  test("whose properties cannot be read is distinct from another one with the same body", () => {
    const unread = (bytes: string) =>
      brokerMessageOf(delivery({ undecodable: { reason: "no", bytes: Buffer.from(bytes) } }, Buffer.from("{}")));
    expect(unread("1")).toMatchObject({ origin: { "x-amqp-properties": "MQ==" } });
    expect(unread("1").messageId).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(unread("1").messageId).toBe(unread("1").messageId);
    expect(unread("1").messageId).not.toBe(unread("2").messageId);
  });

  test("takes a header named __proto__ for what it is", () => {
    const headers = JSON.parse('{"__proto__":"a"}');
    expect(Object.entries(brokerMessageOf(delivery({ headers })).headers)).toEqual([["__proto__", "a"]]);
  });
});

function delivery(properties: object, content = Buffer.alloc(0)): ConsumeMessage {
  return { content, properties, fields: {} } as unknown as ConsumeMessage;
}

import { describe, expect, test } from "@jest/globals";
import { type CloudEvent, HTTP, Kafka } from "cloudevents";
import { compileCloudEvents } from "../../../../src/core/delivery/cloudEvents.ts";
import { messageFields } from "../../../../src/core/delivery/template.ts";
import type { DeliverableRow, Headers, MessageId } from "../../../../src/model/rows.ts";

const ID = "01980000-0000-7000-8000-000000000001" as MessageId;
const ROW = {
  id: ID,
  topic: "orders.paid",
  key: "k 1",
  aggregateType: null,
  payload: '{"n":1.0}',
  headers: {},
  createdAt: new Date(0),
};
const JSON_TYPE = { "content-type": "application/json" };
const HTTP_BINDING = { prefix: "ce-", isEncoded: true };
const SETTINGS = { mode: "binary", source: "/shop", type: "{{ topic }}", subject: "{{ key }}" } as const;

function written(
  settings: Partial<Parameters<typeof compileCloudEvents>[0]>,
  binding = HTTP_BINDING,
  {
    row = {},
    headers = JSON_TYPE as Headers,
    body = ROW.payload,
  }: { row?: Partial<typeof ROW>; headers?: Headers; body?: string } = {},
) {
  const full = { ...ROW, ...row };
  return compileCloudEvents({ ...SETTINGS, ...settings }, binding, new Set(["events"]))(
    full,
    messageFields(full as DeliverableRow),
    body,
    headers,
  );
}

const ATTRIBUTES = {
  specversion: "1.0",
  id: ID,
  source: "/shop",
  type: "orders.paid",
  subject: "k 1",
  time: "1970-01-01T00:00:00.000Z",
};

describe("a CloudEvent", () => {
  test("in binary mode keeps the body, and is read by the library from HTTP and from Kafka", () => {
    const http = written({}, HTTP_BINDING, { headers: { ...JSON_TYPE, "x-a": "1" } });
    expect(http.body).toBe('{"n":1.0}');
    expect(http.headers).toMatchObject({ "x-a": "1", "ce-subject": "k%201" });
    const event = HTTP.toEvent({ ...http, headers: { ...http.headers } }) as CloudEvent;
    expect(event.validate()).toBe(true);
    expect(event).toMatchObject({
      ...ATTRIBUTES,
      subject: "k%201",
      datacontenttype: "application/json",
      data: { n: 1 },
    });

    const kafka = written({}, { prefix: "ce_", isEncoded: false });
    const read = Kafka.toEvent({
      headers: { ...kafka.headers },
      body: kafka.body,
      value: kafka.body,
      key: "k",
      timestamp: "",
    } as never);
    expect(read).toMatchObject({ ...ATTRIBUTES, data: { n: 1 } });
    expect(written({}, { prefix: "cloudEvents_", isEncoded: false }).headers).toMatchObject({
      cloudEvents_subject: "k 1",
    });
  });

  test("in structured mode has the body as its data, with its digits unchanged", () => {
    const { body, headers } = written({ mode: "structured" });
    expect(headers).toEqual({ "content-type": "application/cloudevents+json; charset=utf-8" });
    expect(body).toContain('"data":{"n":1.0}}');
    const event = HTTP.toEvent({ body, headers: { ...headers } }) as CloudEvent;
    expect(event).toMatchObject({ ...ATTRIBUTES, datacontenttype: "application/json", data: { n: 1 } });
  });

  test.each([
    ["text/csv", "a,b\n", "text/csv", "a,b\n"],
    ["application/json", "{not json", "text/plain", "{not json"],
    ["application/vnd.shop+json; v=1", '"text"', "application/vnd.shop+json; v=1", "text"],
  ])("in structured mode has data of the type %s with the text %j", (type, text, datacontenttype, data) => {
    const { body } = written({ mode: "structured" }, HTTP_BINDING, { headers: { "Content-Type": type }, body: text });
    expect(JSON.parse(body)).toMatchObject({ datacontenttype, data });
  });

  test("that was received stays that event, from any binding to any other", () => {
    const received = {
      ...JSON_TYPE,
      "CE-Id": "a%20b",
      ce_source: "/else",
      "cloudEvents:type": "t",
      cloudEvents_traceparent: "00-1",
      "ce-datacontenttype": "text/plain",
      "ce-bad.name": "kept",
    };
    const { headers } = written({}, { prefix: "ce_", isEncoded: false }, { headers: received });
    expect(headers).toEqual({
      ...JSON_TYPE,
      "ce-bad.name": "kept",
      ce_specversion: "1.0",
      ce_id: "a b",
      ce_source: "/else",
      ce_type: "t",
      ce_subject: "k 1",
      ce_traceparent: "00-1",
      ce_time: ATTRIBUTES.time,
    });
    expect(written({}, HTTP_BINDING, { headers: received }).headers).toMatchObject({
      "ce-id": "a%20b",
      "ce-source": "/else",
    });
    expect(written({}, HTTP_BINDING, { headers: { "ce-id": "50% off" } }).headers).toMatchObject({
      "ce-id": "50%25%20off",
    });
  });

  test("takes attributes of a sender only if its source takes events", () => {
    const claimed = { "ce-id": "x", "CE-Source": "/bank", ce_type: "paid", "ce-subject": "s", "ce-dataschema": "/d" };
    const ofDestination = { ...JSON_TYPE, "ce-trace": "t" };
    const from = (source: string | undefined) => {
      const own: Headers = source === undefined ? claimed : { ...claimed, "x-source": source };
      return written({}, HTTP_BINDING, { row: { headers: own }, headers: { ...ofDestination, ...own } }).headers;
    };
    expect(from("hooks")).toEqual({
      ...JSON_TYPE,
      "x-source": "hooks",
      "ce-specversion": "1.0",
      "ce-id": ID,
      "ce-source": "/shop",
      "ce-type": "orders.paid",
      "ce-subject": "k%201",
      "ce-time": ATTRIBUTES.time,
      "ce-trace": "t",
    });
    // Of an event, and of a row that an application wrote.
    for (const source of ["events", undefined])
      expect(from(source)).toMatchObject({ "ce-id": "x", "ce-source": "/bank", "ce-type": "paid", "ce-trace": "t" });
  });

  test("encodes what a header cannot carry", () => {
    const { headers } = written({}, HTTP_BINDING, { row: { key: 'a"%\r\n\u{1F600}é~!' } });
    expect(headers["ce-subject"]).toBe("a%22%25%0D%0A%F0%9F%98%80%C3%A9~!");
    expect(decodeURIComponent(headers["ce-subject"] ?? "")).toBe('a"%\r\n\u{1F600}é~!');
  });

  test("has no subject and time if the row has none, and needs a source and a type", () => {
    const { headers } = written({}, HTTP_BINDING, { row: { key: null as never, createdAt: null as never } });
    expect(Object.keys(headers)).toEqual(["content-type", "ce-specversion", "ce-id", "ce-source", "ce-type"]);
    expect(() => written({ source: "{{ payload.missing }}" })).toThrow("the source of the CloudEvent is empty");
    expect(() => compileCloudEvents({ ...SETTINGS, type: "{{ x }}" }, HTTP_BINDING, new Set())).toThrow(
      "unknown placeholder {{ x }}",
    );
  });

  test("ignores attributes without text, and a header that would be its data", () => {
    const headers = { ...JSON_TYPE, "ce-source": "", "ce-subject": "", "ce-id": "", "ce-data": "x", "ce-ext": "" };
    const { body } = written({ mode: "structured" }, HTTP_BINDING, { headers });
    expect(body.match(/"data":/g)).toHaveLength(1);
    expect(JSON.parse(body)).toEqual({ ...ATTRIBUTES, datacontenttype: "application/json", data: { n: 1 } });
    expect(written({}, HTTP_BINDING, { headers }).headers).not.toHaveProperty("ce-data");
  });
});

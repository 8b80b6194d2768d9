import { describe, expect, test } from "@jest/globals";
import { CloudEvent, HTTP } from "cloudevents";
import { compileCloudEvents } from "../../../../src/core/delivery/cloudEvents.ts";
import { messageFields } from "../../../../src/core/delivery/template.ts";
import { readEvent } from "../../../../src/core/receipt/cloudEvents.ts";
import { HTTP_BINDING } from "../../../../src/model/cloudEvents.ts";
import type { DeliverableRow, Headers, MessageId } from "../../../../src/model/rows.ts";
import { anyJsonText, anyText, fuzz } from "../../../property/fuzz.ts";

const STRUCTURED = { "Content-Type": "application/cloudevents+json; charset=utf-8" };
const ATTRIBUTES = { specversion: "1.0", id: "e 1", source: "/a", type: "t" };
const read = (body: string | Buffer, headers: Readonly<Record<string, string>>) => {
  const event = readEvent({ body: Buffer.from(body), headers });
  return event.kind === "failed" ? event.reason : { body: String(event.body), headers: event.headers };
};
const envelope = (members: object) => JSON.stringify({ ...ATTRIBUTES, ...members });

describe("a received event", () => {
  test("that the library wrote is read, in both modes", () => {
    const event = new CloudEvent({
      id: "é 1",
      source: "/a",
      type: "t",
      subject: "s%1",
      data: { n: 1 },
      traceparent: "00-1",
    });
    const attributes = {
      "ce-id": "%C3%A9%201",
      "ce-source": "/a",
      "ce-type": "t",
      "ce-subject": "s%251",
      "ce-specversion": "1.0",
      "ce-traceparent": "00-1",
      "ce-time": event.time,
    };
    const structured = HTTP.structured(event);
    expect(read(String(structured.body), structured.headers as Record<string, string>)).toMatchObject({
      body: '{"n":1}',
      headers: { ...attributes, "content-type": "application/json" },
    });
    // The library does not encode: what cannot be decoded is taken unchanged.
    const binary = HTTP.binary(event);
    expect(read(String(binary.body), { ...(binary.headers as Record<string, string>), "x-a": "1" })).toMatchObject({
      body: '{"n":1}',
      headers: { ...attributes, "x-a": "1" },
    });
  });

  test.each([
    ["2026-01-05T08:30:00Z", true],
    ["2026-01-05t08:30:00.123456789012+05:30", true],
    ["1937-01-01T12:00:27.87+00:20", true],
    ["2026-12-31T23:59:60Z", true],
    ["", true],
    ["2026-01-05", false],
    ["2026-01-05 08:30:00Z", false],
    ["2026-01-05T08:30:00", false],
    ["2026-02-30T08:30:00Z", false],
    ["2026-01-05T08:30:00+0530", false],
    ["1767601800", false],
    ["yesterday", false],
  ])("has a time of RFC 3339, or is refused: %p", (time, isTaken) => {
    const refused = expect.stringContaining("its time is not a timestamp of RFC 3339");
    const taken = isTaken ? expect.objectContaining({ body: "null" }) : refused;
    expect(read(envelope({ time }), STRUCTURED)).toEqual(taken);
    const { specversion, id, source, type } = ATTRIBUTES;
    const headers = { "ce-specversion": specversion, "ce-id": id, "ce-source": source, "ce-type": type };
    expect(read("", { ...headers, "ce-time": time })).toEqual(taken);
  });

  test("keeps the text of its data, and has null without data", () => {
    const text = `{"data":1,"specversion":"1.0","id":"1","source":"s","type":"t","x":{"data":2},"data": {"n": 1.0, "big":12345678901234567890} }`;
    expect(read(text.replace(',"x":{"data":2}', ""), STRUCTURED)).toMatchObject({
      body: '{"n": 1.0, "big":12345678901234567890}',
    });
    expect(read(envelope({}), STRUCTURED)).toMatchObject({ body: "null" });
    expect(read(envelope({ data: "a,b", datacontenttype: "text/csv" }), STRUCTURED)).toMatchObject({
      body: '"a,b"',
      headers: { "content-type": "text/csv" },
    });
    const base64 = Buffer.from('{"é":1}').toString("base64");
    expect(read(envelope({ data_base64: base64 }), STRUCTURED)).toMatchObject({ body: '{"é":1}' });
  });

  test("has attributes from its envelope alone, as text; null counts as absent", () => {
    const headers = { ...STRUCTURED, "ce-id": "forged", ce_other: "forged", "X-A": "1" };
    expect(read(envelope({ n: 7, ok: true, subject: null, data: 1 }), headers)).toEqual({
      body: "1",
      headers: {
        "X-A": "1",
        "content-type": "application/json",
        ...{
          "ce-specversion": "1.0",
          "ce-id": "e%201",
          "ce-source": "/a",
          "ce-type": "t",
          "ce-n": "7",
          "ce-ok": "true",
        },
      },
    });
  });

  test.each([
    ["ce_", "ce-"],
    ["cloudEvents_", "ce-"],
    ["ce-", "ce_"],
    ["ce-", "cloudEvents:"],
  ])("has an attribute in %s and in %s from the header ce-", (first, second) => {
    const headers = Object.entries({ [first]: first, [second]: second }).map(([prefix, id]) => [`${prefix}id`, id]);
    const others = { "ce-specversion": "1.0", "ce-source": "/a", "ce-type": "t" };
    expect(read("1", { ...others, ...Object.fromEntries(headers) })).toMatchObject({ headers: { "ce-id": "ce-" } });
  });

  test("without data in binary mode has null, and numbers keep their digits", () => {
    const binary = { "ce-specversion": "1.0", "ce-id": "1", "ce-source": "/a", "ce-type": "t" };
    expect(read("", binary)).toMatchObject({ body: "null" });
    const text = `{"n":12345678901234567890,${envelope({ f: 1 }).slice(1)}`;
    expect(read(text, STRUCTURED)).toMatchObject({ headers: { "ce-n": "12345678901234567890", "ce-f": "1" } });
    expect(read("{}", { ...binary, "ce-data": "x" })).toContain("a name that CloudEvents reserves");
  });

  test.each([
    ["it has no attribute specversion, and its content type", "{}", { "content-type": "application/json" }],
    ["it has no attribute id", "{}", { ce_specversion: "1.0", ce_source: "s", ce_type: "t" }],
    ["it has no attribute specversion 1.0", "{}", { ce_specversion: "0.3", ce_id: "1", ce_source: "s", ce_type: "t" }],
    ["its envelope is not a JSON object", "[]", STRUCTURED],
    ["its envelope is not a JSON object", "{", STRUCTURED],
    ["its envelope is not a JSON object", Buffer.from([0xff]), STRUCTURED],
    ["it has no attribute source", '{"specversion":"1.0","id":"1","type":"t"}', STRUCTURED],
    ["it has no attribute id", envelope({ id: "" }), STRUCTURED],
    ['its attribute "Bad-Name" is not a lower-case word', envelope({ "Bad-Name": "1" }), STRUCTURED],
    ["its attribute list is not a string, a number or a boolean", envelope({ list: [] }), STRUCTURED],
    ["its attribute id holds half of a surrogate pair", envelope({ id: "a\ud800" }), STRUCTURED],
    ["its attribute id holds half of a surrogate pair", envelope({ id: "\udc00\ud800" }), STRUCTURED],
    ["its datacontenttype holds what no header can", envelope({ datacontenttype: "a\u0000" }), STRUCTURED],
    ["its datacontenttype holds what no header can", envelope({ datacontenttype: "a\ud800" }), STRUCTURED],
    ["its datacontenttype holds what no header can", envelope({ datacontenttype: "a\r\nX-B: c" }), STRUCTURED],
    ["it has both data and data_base64", envelope({ data: 1, data_base64: "QQ==" }), STRUCTURED],
    ["its data_base64 is not base64", envelope({ data_base64: "?" }), STRUCTURED],
    ["it is a batch", "[]", { "content-type": "application/cloudevents-batch+json" }],
    ["its format is not JSON", "x", { "content-type": "application/cloudevents+avro" }],
  ])("is refused: %s", (reason, body, headers) => {
    expect(read(body, headers)).toContain(reason);
  });

  test("that goes out again is the same event", () => {
    const received = read(envelope({ subject: "ü", data: { n: 1 }, ext: "e" }), STRUCTURED);
    if (typeof received === "string") throw new Error(received);
    const row = {
      id: "x" as MessageId,
      topic: "t",
      key: null,
      aggregateType: null,
      payload: received.body,
      headers: { ...received.headers, "x-source": "events" } as Headers,
      createdAt: new Date(),
    };
    const write = compileCloudEvents(
      { mode: "structured", source: "/other", type: "{{ topic }}", subject: "{{ key }}" },
      HTTP_BINDING,
      new Set(["events"]),
    );
    const { body } = write(row, messageFields(row as DeliverableRow), received.body, received.headers);
    expect(JSON.parse(body)).toMatchObject({
      ...ATTRIBUTES,
      subject: "ü",
      ext: "e",
      data: { n: 1 },
      datacontenttype: "application/json",
    });
  });
});

test("any bytes and headers are read or refused", () => {
  const names = [
    "content-type",
    "ce-id",
    "ce-source",
    "ce-type",
    "ce-specversion",
    "CE_x",
    "cloudEvents:id",
    "__proto__",
  ];
  const values = ["1.0", "application/cloudevents+json", "%", "%ff", "a"];
  const kinds = new Set<string>();
  fuzz(
    (dice) => {
      const body = dice.pick([() => anyText(dice), () => anyJsonText(dice), () => envelope({ data: 1 })])();
      const value = () => (dice.chance(0.7) ? dice.pick(values) : anyText(dice));
      const chosen = names.filter(() => dice.chance(0.5));
      return { body, headers: Object.fromEntries(chosen.map((name) => [name, value()])) };
    },
    ({ body, headers }) => {
      const event = readEvent({ body: Buffer.from(body), headers });
      kinds.add(event.kind);
      return event.kind === "failed" ? event.reason.length < 300 : event.headers["ce-specversion"] === "1.0";
    },
  );
  expect(kinds.size).toBe(2);
});

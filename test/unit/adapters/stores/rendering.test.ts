import { describe, expect, test } from "@jest/globals";
import { type ReceivedRow, renderHeaders } from "../../../../src/adapters/stores/sql/inbox.ts";
import type { Headers, MessageId } from "../../../../src/model/rows.ts";
import { renderTopic } from "../../../../src/model/topics.ts";

const ADDED = { "x-correlation-id": "c", "x-inbox-id": "i", "x-source": "orders", "x-idempotency-key": "k" };

function rowWith(headers: Headers, correlationId: string | null = "c"): ReceivedRow {
  const row = { id: "i" as MessageId, source: "orders", eventType: null, idempotencyKey: "k" };
  return { ...row, correlationId, headers };
}

const dropped = { names: ["host", "x-source"], prefixes: ["accept", "x-forwarded-"] };

describe("the topic", () => {
  test.each<[string, readonly string[], string | null, string]>([
    ["is the template around each event type", ["a.", ".", ".b"], "x", "a.x.x.b"],
    ["has no white space around it", [" \t", " \n"], " x y ", "x y"],
    ["keeps white space that only some databases know", ["\u00a0", "\u2003"], "x", "\u00a0x\u2003"],
    ["may be the template alone", ["orders"], "created", "orders"],
    ["takes a missing event type as empty", ["orders.", ""], null, "orders."],
    ["may be empty", ["", ""], "  ", ""],
  ])("%s", (_, pieces, eventType, topic) => {
    expect(renderTopic(pieces, eventType)).toBe(topic);
  });
});

describe("the headers", () => {
  test("are the received ones without the dropped, in any letter case, and what identifies the message", () => {
    const headers = {
      traceparent: "00",
      Host: "h",
      "ACCEPT-Language": "l",
      "X-Forwarded-For": "f",
      Accepted: "a",
      "x-f": "x",
    };

    expect(renderHeaders(rowWith(headers), dropped)).toEqual({ traceparent: "00", "x-f": "x", ...ADDED });
  });

  test.each([
    ["application/json; charset=utf-8", true],
    ["application/cloudevents+JSON", true],
    ["text/plain", false],
    ["json", false],
  ])("keep the content type %s: %s", (type, kept) => {
    expect("Content-Type" in renderHeaders(rowWith({ "Content-Type": type }), dropped)).toBe(kept);
  });

  test("of the message win over received ones of the same name; a missing correlation id takes nothing away", () => {
    const headers = { "x-inbox-id": "forged", "x-correlation-id": "theirs" };

    expect(renderHeaders(rowWith(headers), dropped)).toEqual(ADDED);
    expect(renderHeaders(rowWith(headers, null), dropped)).toEqual({ ...ADDED, "x-correlation-id": "theirs" });
  });

  test("are dropped by names that are the same in ASCII letters alone", () => {
    const headers = { HOST: "h", "ho\u017ft": "s", "\u212Aost": "k", "x-\u212A": "x", "ACCEPT-İ": "a" };

    expect(renderHeaders(rowWith(headers), { ...dropped, names: ["host", "kost"] })).toEqual({
      "ho\u017ft": "s",
      "\u212Aost": "k",
      "x-\u212A": "x",
      ...ADDED,
    });
  });

  test("may have the names of an object's own parts", () => {
    const headers = JSON.parse('{"__proto__":"p","constructor":"c"}') as Headers;

    const rendered = renderHeaders(rowWith(headers), dropped);

    expect(JSON.parse(JSON.stringify(rendered))).toEqual(JSON.parse(JSON.stringify({ ...headers, ...ADDED })));
    expect(Object.keys(rendered)).toContain("__proto__");
  });
});

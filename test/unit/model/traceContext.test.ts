import { describe, expect, test } from "@jest/globals";
import {
  asRelayed,
  givenContext,
  partsOf,
  sampledTraceId,
  storedContext,
  traceFields,
  traceIdOf,
  withContext,
  withReceiptContext,
} from "../../../src/model/traceContext.ts";

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const SPAN = "b7ad6b7169203331";
const GIVEN = `00-${TRACE}-${SPAN}-01`;
const OWN = `00-${"1".repeat(32)}-${"2".repeat(16)}-00`;

describe("traceparent", () => {
  test.each([
    [GIVEN, { traceId: TRACE, spanId: SPAN, isSampled: true }],
    [`00-${TRACE}-${SPAN}-00`, { traceId: TRACE, spanId: SPAN, isSampled: false }],
    // The flags of a later version may say more.
    [`cc-${TRACE}-${SPAN}-03-more`, { traceId: TRACE, spanId: SPAN, isSampled: true }],
  ])("%s is read", (text, expected) => {
    expect(givenContext({ traceparent: text })).toEqual({ traceparent: text, tracestate: undefined });
    expect(partsOf(text)).toEqual(expected);
  });

  test.each([
    "",
    "00",
    `ff-${TRACE}-${SPAN}-01`,
    `00-${"0".repeat(32)}-${SPAN}-01`,
    `00-${TRACE}-${"0".repeat(16)}-01`,
    `00-${TRACE.toUpperCase()}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-1`,
    `00-${TRACE}-${SPAN}-01more`,
    `${GIVEN}, ${GIVEN}`,
  ])("%s is none", (text) => {
    expect(sampledTraceId({ traceparent: text })).toBeUndefined();
    expect(givenContext({ traceparent: text })).toBeUndefined();
    expect(traceFields({ traceparent: text })).toEqual({});
  });
});

describe("the headers of a message", () => {
  test("a sender's context is found in any letter case, and stays beside that of the receipt", () => {
    const headers = { TraceParent: GIVEN, Tracestate: "a=1", other: "x" };
    expect(givenContext(headers)).toEqual({ traceparent: GIVEN, tracestate: "a=1" });

    const received = withReceiptContext(headers, { traceparent: OWN });

    expect({ ...received }).toEqual({ TraceParent: GIVEN, Tracestate: "a=1", other: "x", "svc-traceparent": OWN });
    expect({ ...asRelayed(received) }).toEqual({ other: "x", traceparent: OWN });
    expect(storedContext(received)).toEqual({ traceparent: OWN, tracestate: undefined });
    expect(traceIdOf(received)).toBe("1".repeat(32));
  });

  test("an application's row has its own context, and a row without one has none", () => {
    expect(storedContext({ traceparent: GIVEN, tracestate: "a=1" })).toEqual({ traceparent: GIVEN, tracestate: "a=1" });
    expect(storedContext({ other: "x" })).toBeUndefined();
    expect(traceIdOf({})).toBeUndefined();
    const headers = { traceparent: GIVEN };
    expect(asRelayed(headers)).toBe(headers);
  });

  test("another context takes the place of all that were there", () => {
    const headers = { TRACEPARENT: GIVEN, tracestate: "a=1", "svc-tracestate": "b=2", baggage: "c=3" };
    expect({ ...withContext(headers, { traceparent: OWN, tracestate: "d=4" }) }).toEqual({
      baggage: "c=3",
      traceparent: OWN,
      tracestate: "d=4",
    });
  });

  test("a trace to look at is a sampled one", () => {
    expect(sampledTraceId({ traceparent: GIVEN })).toBe(TRACE);
    expect(sampledTraceId({ traceparent: OWN })).toBeUndefined();
    expect(traceFields({ traceparent: GIVEN })).toEqual({ trace_id: TRACE, span_id: SPAN });
  });
});

import { describe, expect, test } from "@jest/globals";
import {
  callerOf,
  hasFilter,
  parseBy,
  parseInstant,
  parseParkedChange,
  parseReason,
  parseReplayRequest,
} from "../../../../src/core/finished/requests.ts";

const ID = "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f";

/** The fields that are set. */
const parsed = (value: unknown): object => JSON.parse(JSON.stringify(parseReplayRequest(value)));

describe("a replay request", () => {
  test("takes every field", () => {
    const request = {
      state: "dead",
      ids: [ID],
      topic: "orders.created",
      topics: ["orders.created", ""],
      destination: "billing",
      createdAfter: "2026-01-05T08:30:00Z",
      createdBefore: "2026-01-05T10:30:00.5+01:00",
    };
    expect(parsed(request)).toEqual({
      ...request,
      createdAfter: "2026-01-05T08:30:00.000000Z",
      createdBefore: "2026-01-05T09:30:00.500000Z",
    });
  });

  test("ignores unknown fields, and takes null for absent", () => {
    const body = '{"topic":"a","ids":null,"createdAfter":null,"limit":3,"__proto__":{"destination":"x"}}';
    expect(parsed(JSON.parse(body))).toEqual({ topic: "a" });
  });

  test("has a filter when any field is set, also one that matches nothing", () => {
    for (const request of [
      { state: "dead" },
      { ids: [] },
      { topics: [] },
      { topic: "" },
      { createdBefore: "2026-01-05T08:30:00Z" },
      { inbox: true, source: "events" },
    ]) {
      expect(hasFilter(parseReplayRequest(request))).toBe(true);
    }
    for (const request of [{}, { topic: null }, { topik: "a" }, { inbox: true }]) {
      expect(hasFilter(parseReplayRequest(request))).toBe(false);
    }
  });

  test("takes the fields of the inbox", () => {
    const request = { inbox: true, source: "events", state: "dead", ids: [ID] };
    expect(parsed(request)).toEqual(request);
    expect(parsed({ inbox: false, topic: "a" })).toEqual({ inbox: false, topic: "a" });
  });

  test("takes ids in any letter case for the same ids", () => {
    expect(parsed({ ids: [ID.toUpperCase()] })).toEqual({ ids: [ID] });
  });

  test.each<[unknown, string]>([
    [[], "the body is an array; a JSON object is expected"],
    [null, "the body is null; a JSON object is expected"],
    [undefined, "the body is missing; a JSON object is expected"],
    ["topic", "the body is a string; a JSON object is expected"],
    [{ ids: ID }, '"ids" is a string; an array of strings is expected'],
    [{ ids: {} }, '"ids" is an object; an array of strings is expected'],
    [{ ids: [ID, 7] }, '"ids[1]" is a number; a string is expected'],
    [{ ids: [ID, null] }, '"ids[1]" is null; a string is expected'],
    [{ ids: [`${ID}0`] }, `"ids[0]" is "${ID}0"; a UUID such as ${ID} is expected`],
    [{ ids: [`{${ID}}`] }, `"ids[0]" is "{${ID}}"; a UUID such as ${ID} is expected`],
    [{ ids: ["x".repeat(100_000)] }, `"ids[0]" is "${"x".repeat(60)}…"; a UUID such as ${ID} is expected`],
    [{ inbox: "yes" }, '"inbox" is not valid; true or false is expected'],
    [{ source: "events" }, '"source" needs "inbox"'],
    [{ inbox: true, state: "sent" }, '"state" is "sent"; of the inbox only dead rows are replayed'],
    [{ inbox: true, topic: "a" }, '"topic" does not go with "inbox"'],
    [{ inbox: true, ids: [ID], toDestination: "a" }, '"toDestination" does not go with "inbox"'],
    [{ state: "pending" }, '"state" is "pending"; "sent" or "dead" is expected'],
    [{ state: ["dead"] }, '"state" is an array; a string is expected'],
    [{ topic: ["a"] }, '"topic" is an array; a string is expected'],
    [{ topics: "a" }, '"topics" is a string; an array of strings is expected'],
    [{ destination: false }, '"destination" is a boolean; a string is expected'],
    [
      { topics: ["a\0"] },
      '"topics[0]" is "a\\u0000"; text without NUL and lone surrogates is expected, for no database stores those',
    ],
    [
      { topic: "\ud800" },
      '"topic" is "\\ud800"; text without NUL and lone surrogates is expected, for no database stores those',
    ],
    [{ createdAfter: 1767601800000 }, '"createdAfter" is a number; a string is expected'],
    [
      { createdBefore: "yesterday" },
      '"createdBefore" is "yesterday"; an ISO-8601 instant with Z or an offset, such as 2026-01-05T08:30:00Z, is expected',
    ],
  ])("%j is refused with the reason", (request, reason) => {
    expect(() => parseReplayRequest(request)).toThrow(new Error(reason));
  });
});

describe("an instant", () => {
  test.each([
    ["2026-01-05T08:30:00Z", "2026-01-05T08:30:00.000000Z"],
    ["2026-01-05t08:30:00z", "2026-01-05T08:30:00.000000Z"],
    ["2026-01-05T08:30Z", "2026-01-05T08:30:00.000000Z"],
    ["2026-01-05T08:30:00,25Z", "2026-01-05T08:30:00.250000Z"],
    ["2026-01-05T08:30:00.123456Z", "2026-01-05T08:30:00.123456Z"],
    ["2026-01-05T00:30:00+01:00", "2026-01-04T23:30:00.000000Z"],
    ["2026-01-05T23:30:00-0130", "2026-01-06T01:00:00.000000Z"],
    ["2026-01-05T08:30:00+02", "2026-01-05T06:30:00.000000Z"],
    ["2024-02-29T12:00:00Z", "2024-02-29T12:00:00.000000Z"],
    ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"],
    ["0099-12-31T00:00:00Z", "0099-12-31T00:00:00.000000Z"],
    ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"],
  ])("%s is %s", (text, instant) => {
    expect(parseInstant(text, "after")).toBe(instant);
    expect(parseInstant(text, "before")).toBe(instant);
  });

  test("finer than a microsecond keeps every stored time on its side of the bound", () => {
    expect(parseInstant("2026-01-05T08:30:00.1234567Z", "after")).toBe("2026-01-05T08:30:00.123456Z");
    expect(parseInstant("2026-01-05T08:30:00.1234567Z", "before")).toBe("2026-01-05T08:30:00.123457Z");
    expect(parseInstant("2026-01-05T08:30:00.123456000Z", "before")).toBe("2026-01-05T08:30:00.123456Z");
    expect(parseInstant("2026-12-31T23:59:59.9999999Z", "before")).toBe("2027-01-01T00:00:00.000000Z");
  });

  test.each([
    "2026-01-05",
    "2026-01-05T08:30:00",
    "2026-01-05 08:30:00Z",
    "2026-1-5T08:30:00Z",
    "20260105T083000Z",
    "2026-01-05T08Z",
    "2026-01-05T08:30:00.Z",
    "+012026-01-05T08:30:00Z",
    "-2026-01-05T08:30:00Z",
    " 2026-01-05T08:30:00Z",
    "2026-01-05T08:30:00Z\n",
    "2026-01-05T08:30:00 UTC",
    "2026-01-05T08:30:00+2:00",
    "٢٠٢٦-01-05T08:30:00Z",
    "now",
    "infinity",
    "",
  ])("%j is refused: the format", (text) => {
    expect(() => parseInstant(text, "after")).toThrow("an ISO-8601 instant with Z or an offset, such as");
  });

  test.each([
    "2026-13-01T00:00:00Z",
    "2026-00-01T00:00:00Z",
    "2026-02-29T00:00:00Z",
    "2026-04-31T00:00:00Z",
    "2026-01-00T00:00:00Z",
    "2026-01-05T24:00:00Z",
    "2026-01-05T08:60:00Z",
    "2026-01-05T08:30:60Z",
    "2026-01-05T08:30:00+24:00",
    "2026-01-05T08:30:00+01:60",
  ])("%s is refused: there is no such time", (text) => {
    expect(() => parseInstant(text, "after")).toThrow("a date, a time and an offset that exist are expected");
  });

  test.each(["0000-12-31T00:00:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"])(
    "%s is refused: no database here holds that year",
    (text) => {
      expect(() => parseInstant(text, "after")).toThrow("a year from 0001 to 9999 in UTC is expected");
    },
  );

  test("whose rounding leaves the last year is refused", () => {
    expect(() => parseInstant("9999-12-31T23:59:59.9999999Z", "before")).toThrow("a year from 0001 to 9999");
  });
});

describe("a reason", () => {
  test("comes without blanks around it", () => {
    expect(parseReason("  they migrate\n")).toBe("they migrate");
    expect(parseReason("\u00a0")).toBe("\u00a0");
    expect(parseReason("x".repeat(1000))).toHaveLength(1000);
  });

  test.each([
    ["", "not blank"],
    [" \n\t", "not blank"],
    ["x".repeat(1001), "at most 1000 characters is expected; this one has 1001"],
    ["a\0b", "without NUL"],
    ["a\ud800b", "lone surrogates"],
  ])("is refused: %j", (text, expected) => {
    expect(() => parseReason(text)).toThrow(expected);
  });

  test("of parked rows may be as long as that of a pause", () => {
    const reason = "x".repeat(1000);
    expect(parseParkedChange({ all: true, reason }, true).reason).toBe(reason);
    expect(() => parseParkedChange({ all: true, reason: `${reason}x` }, true)).toThrow("at most 1000 characters");
  });
});

describe("who makes a change", () => {
  test.each(["a", "alice", "Zoë Müller", "ops/on-call #3", "爱丽丝", "🙂".repeat(100), "x".repeat(100)])(
    "may be %j",
    (text) => {
      expect(parseBy(text)).toBe(text);
    },
  );

  test.each([
    "",
    " ",
    " a",
    "a ",
    "a\n",
    "a\nb",
    "a\0b",
    "a\u202eb",
    "a\u200bb",
    "a\u2028b",
    "a\ud800b",
    "x".repeat(101),
  ])("is refused: %j", (text) => {
    expect(() => parseBy(text)).toThrow("1 to 100 printable characters");
  });

  test("is the caller's word, and cannot pass for somebody at the command", () => {
    expect(callerOf("alice")).toBe("alice (admin route)");
    expect(callerOf("ada@ops-1")).toBe("ada@ops-1 (admin route)");
    expect(callerOf(undefined)).toBe("admin route");
  });

  test("is read of a change of parked rows", () => {
    expect(parseParkedChange({ all: true, by: "alice" }, false).by).toBe("alice (admin route)");
    expect(parseParkedChange({ all: true, by: null }, false).by).toBe("admin route");
    expect(() => parseParkedChange({ all: true, by: 7 }, false)).toThrow('"by" is a number; a string is expected');
  });
});

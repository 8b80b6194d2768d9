import { describe, expect, test } from "@jest/globals";
import { hasFilter, misfit } from "../../../src/core/operations/replayRequest.ts";
import { CALLER } from "../../../src/http/admin/operation.ts";
import { replayFields } from "../../../src/http/admin/operations/replay.ts";
import { readBody, readFields } from "../../../src/http/fields.ts";

const ID = "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f";

const bytes = (value: unknown): Buffer => Buffer.from(JSON.stringify(value), "utf8");
const parse = (value: unknown) => {
  const request = readFields(replayFields(["billing"]), readBody(bytes(value)));
  const reason = misfit(request);
  if (reason !== undefined) throw new Error(reason);
  return request;
};
/** The fields that are set. */
const parsed = (value: unknown): object => JSON.parse(JSON.stringify(parse(value)));

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

  test("has a filter when any field is set, also if it matches nothing", () => {
    for (const request of [
      { state: "dead" },
      { ids: [] },
      { topics: [] },
      { topic: "" },
      { createdBefore: "2026-01-05T08:30:00Z" },
      { inbox: true, source: "events" },
    ]) {
      expect(hasFilter(parse(request))).toBe(true);
    }
    for (const request of [{}, { topic: null }, { topik: "a" }, { inbox: true }]) {
      expect(hasFilter(parse(request))).toBe(false);
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
    [{ inbox: true, topic: "a" }, '"topic" cannot be combined with "inbox"'],
    [{ inbox: true, ids: [ID], toDestination: "billing" }, '"toDestination" cannot be combined with "inbox"'],
    [{ inbox: true, ids: [ID], add: "billing" }, '"add" cannot be combined with "inbox"'],
    [{ ids: [ID], state: "dead", add: "billing" }, '"state" cannot be combined with "add", which is about messages'],
    [{ ids: [ID], add: "audit" }, '"add" is "audit"; the name of a destination is expected (there are billing)'],
    [{ state: "pending" }, '"state" is "pending"; "sent" or "dead" is expected'],
    [{ state: ["dead"] }, '"state" is an array; a string is expected'],
    [{ topic: ["a"] }, '"topic" is an array; a string is expected'],
    [{ topics: "a" }, '"topics" is a string; an array of strings is expected'],
    [{ destination: "b" }, '"destination" is "b"; the name of a destination is expected (there are billing)'],
    [{ destination: false }, '"destination" is a boolean; a string is expected'],
    [
      { topics: ["a\0"] },
      '"topics[0]" is "a\\u0000"; text without NUL and lone surrogates is expected: databases store neither',
    ],
    [
      { topic: "\ud800" },
      '"topic" is "\\ud800"; text without NUL and lone surrogates is expected: databases store neither',
    ],
    [{ createdAfter: 1767601800000 }, '"createdAfter" is a number; a string is expected'],
    [
      { createdBefore: "yesterday" },
      '"createdBefore" is "yesterday"; an ISO-8601 instant with Z or an offset, such as 2026-01-05T08:30:00Z, is expected',
    ],
  ])("%j is refused with the reason", (request, reason) => {
    expect(() => parse(request)).toThrow(new Error(reason));
  });
});

test("the caller's word cannot pass for somebody at the command", () => {
  const by = (value: unknown) => readFields({ by: CALLER }, { by: value }).by;
  expect(by("alice")).toBe("alice (admin route)");
  expect(by("ada@ops-1")).toBe("ada@ops-1 (admin route)");
  expect(by(undefined)).toBe("admin route");
  expect(by(null)).toBe("admin route");
  expect(() => by(7)).toThrow('"by" is a number; a string is expected');
});

import { describe, expect, test } from "@jest/globals";
import { publishableSubject } from "../../../../../src/adapters/destinations/nats/subject.ts";

describe("the subject of a NATS publish", () => {
  test.each(["orders", "orders.created.eu", "a*b.c>", "größe.東京", "$KV.bucket.key", "$JSON.x", "x".repeat(3800)])(
    "may be %.40s",
    (subject) => {
      expect(publishableSubject(subject)).toBe(subject);
    },
  );

  test.each<[string | null, RegExp]>([
    ["", /is empty/],
    [null, /is empty/],
    ["a b", /blank or control/],
    ["a\tb", /blank or control/],
    ["a\r\nPUB b 0", /"a\\r\\nPUB b 0" holds a blank/],
    ["a\u0000", /blank or control/],
    ["a\u00a0b", /blank or control/],
    ["a..b", /empty token/],
    [".", /empty token/],
    ["a.", /empty token/],
    ["a.*.b", /wildcard \*/],
    [">", /wildcard >/],
    ["$JS.API.STREAM.DELETE.ORDERS", /own interface/],
    ["$SYS.REQ", /own interface/],
    ["é".repeat(1901), /longer than 3800 bytes/],
  ])("may not be %.40j", (subject, reason) => {
    expect(() => publishableSubject(subject)).toThrow(reason);
    expect(() => publishableSubject(subject)).toThrow(expect.objectContaining({ code: "subject_invalid" }));
  });

  test("is shown cut in an error when it is long", () => {
    expect(() => publishableSubject(`${"x".repeat(100_000)} `)).toThrow(/^.{200,300}$/);
  });
});

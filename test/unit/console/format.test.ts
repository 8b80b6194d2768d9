import { describe, expect, test } from "@jest/globals";
import { ago, count, duration, indentJson, instantOf, plural } from "../../../src/console/format.ts";

describe("JSON is indented", () => {
  test.each([
    [
      '{"a":12345678901234567890,"b":[1.0,true],"c":{}}',
      '{\n  "a": 12345678901234567890,\n  "b": [\n    1.0,\n    true\n  ],\n  "c": {}\n}',
    ],
    ["[]", "[]"],
    ['"{,}\\" []"', '"{,}\\" []"'],
    [' [ [ ] , { "k" : [ ] } ] ', '[\n  [],\n  {\n    "k": []\n  }\n]'],
    ["no json", "no json"],
    ["", ""],
  ])("%j, with every digit", (text, expected) => {
    expect(indentJson(text)).toBe(expected);
  });
});

test.each([
  [null, "–"],
  [0, "0 ms"],
  [999, "999 ms"],
  [61_200, "1 min 1 s"],
  [3_600_000, "1 h"],
  [3_605_000, "1 h"],
  [90_000_000, "1 d 1 h"],
])("%p ms are %p", (ms, expected) => {
  expect(duration(ms)).toBe(expected);
});

test("what is not known is a dash and never 0", () => {
  expect([count(null), count(undefined), duration(undefined), ago(null)]).toEqual(Array(4).fill("–"));
  expect([count(0), count(1_234_567), plural(1, "row"), plural(2, "row")]).toEqual([
    "0",
    "1,234,567",
    "1 row",
    "2 rows",
  ]);
});

test("fields hold times in UTC, and give none without one", () => {
  expect(instantOf("2025-01-01T12:30")).toBe("2025-01-01T12:30:00.000Z");
  expect(instantOf("")).toBeUndefined();
  expect(ago("2025-01-01T00:00:00Z", Date.parse("2025-01-01T00:03:20Z"))).toBe("3 min ago");
});

import { describe, expect, test } from "@jest/globals";
import { headerText } from "../../../../src/adapters/brokers/headerText.ts";

describe("a header's value as text", () => {
  test.each<[string, unknown, string | null]>([
    ["a text", "blue", "blue"],
    ["an empty text", "", ""],
    ["bytes in UTF-8", Buffer.from("Grüße"), "Grüße"],
    ["other bytes, in base64", Buffer.from([0xff, 0x00]), "/wA="],
    ["a part of a larger buffer", new Uint8Array(Buffer.from("abcdef")).subarray(2, 4), "cd"],
    ["a number", 1.5, "1.5"],
    ["a large integer", 12345678901234567890n, "12345678901234567890"],
    ["a truth value", false, "false"],
    ["a date", new Date(Date.UTC(2024, 0, 2)), "2024-01-02T00:00:00.000Z"],
    ["a date that is none", new Date(Number.NaN), null],
    ["a table", { count: 1, reason: "expired" }, '{"count":1,"reason":"expired"}'],
    ["a list", ["a", 1], '["a",1]'],
    ["null", null, null],
    ["nothing", undefined, null],
  ])("is that of %s", (_, value, text) => {
    expect(headerText(value)).toBe(text);
  });

  test("is that of bytes inside a table too", () => {
    expect(headerText({ queue: Buffer.from("q"), ids: [1n] })).toBe('{"queue":"q","ids":["1"]}');
  });
});

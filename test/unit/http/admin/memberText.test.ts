import { describe, expect, test } from "@jest/globals";
import { memberText } from "../../../../src/core/receipt/jsonDocument.ts";

describe("the text of a member", () => {
  test.each([
    ["a number with all its digits", '{"a":1,"p":12345678901234567890.10,"b":2}', "12345678901234567890.10"],
    ["without the blanks around it", '{ "p" :\n  { "x" : 1 } , "b":2}', '{ "x" : 1 }'],
    ["as the last member", '{"a":{"p":1},"p":[1,{"p":2}]}', '[1,{"p":2}]'],
    ["a text with quotes, commas and braces", '{"p":"a\\"},\\\\","b":1}', '"a\\"},\\\\"'],
    ["under an escaped name", '{"\\u0070":null}', "null"],
    ["behind texts that look like it", '{"a":"\\"p\\":1","p":2}', "2"],
    ["the last of several", '{"p":1,"p":{},"q":3}', "{}"],
    ["behind an empty object and list", '{"a":{},"b":[],"p":""}', '""'],
  ])("is found: %s", (_what, json, expected) => {
    expect(memberText(json, "p")).toBe(expected);
  });

  test.each(["{}", " { } ", '{"q":"p"}', '{"a":{"p":1}}'])("is undefined when there is none: %s", (json) => {
    expect(memberText(json, "p")).toBeUndefined();
  });

  test("is found however deep its value is nested", () => {
    const deep = "[".repeat(200_000) + "]".repeat(200_000);
    expect(memberText(`{"p":${deep}}`, "p")).toBe(deep);
  });

  test("means what JSON.parse finds, for any mixture of members", () => {
    const values = ["0", "-1.50e3", "true", "null", '"}"', '"\\\\"', "[]", "{}", '[{"a":[","]}]', '{"p":"x"}'];
    for (const first of values) {
      for (const second of values) {
        const json = `{"a": ${first} ,"p":\t${second},"z":${first}}`;
        expect(JSON.parse(memberText(json, "p") ?? "")).toEqual(JSON.parse(json).p);
      }
    }
  });
});

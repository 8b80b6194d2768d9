import { describe, expect, test } from "@jest/globals";
import { itemTexts } from "../../../../src/core/receipt/jsonDocument.ts";
import { type BatchForm, parseListPath, splitBatch } from "../../../../src/core/receipt/requestBatch.ts";
import { anyJson, fuzz, SPACES } from "../../../property/fuzz.ts";

const LINES: BatchForm = { kind: "lines" };
const listAt = (path: string): BatchForm => ({ kind: "list", names: parseListPath(path) });

/** The bodies as text, or the kind of what else was found. */
function split(body: string | Buffer, form: BatchForm, maxItems = 100): readonly string[] | string {
  const result = splitBatch(Buffer.from(body), form, maxItems);
  return result.kind === "messages" ? result.bodies.map((each) => each.toString()) : result.kind;
}

describe("lines", () => {
  test.each([
    ["one after the other", '{"a":1}\n{"a":2}\n', ['{"a":1}', '{"a":2}']],
    ["without a last newline", "1\n2", ["1", "2"]],
    ["with carriage returns and blank lines", "1\r\n\r\n \t\n2\n\n", ["1\r", "2"]],
    ["that are no JSON", "{\n2", ["{", "2"]],
    ["in a text without any", " \n\r\n", []],
    ["in an empty body", "", []],
  ])("%s", (_how, body, bodies) => {
    expect(split(body, LINES)).toEqual(bodies);
  });
});

describe("a list", () => {
  test.each([
    ["$[*]", '[{"id":1}, "b" ,[2,{"c":"]"}],null]', ['{"id":1}', '"b"', '[2,{"c":"]"}]', "null"]],
    ["$.events[*]", '{"events":[1.0, 12345678901234567890 ]}', ["1.0", "12345678901234567890"]],
    ["$.a['b c'][*]", '{"b c":[9],"a":{"b c":[1],"x":{"b c":[2]}}}', ["1"]],
    ["$.events[*]", '{"events":[1],"events":[2]}', ["2"]],
    ["$.__proto__[*]", '{"__proto__":[1]}', ["1"]],
    ["$[*]", "\ufeff [ ] ", []],
    ["$[*]", "[", "invalid_json"],
    ["$[*]", "", "invalid_json"],
    ["$[*]", "{}", "no_list"],
    ["$.events[*]", '{"events":{"0":1}}', "no_list"],
    ["$.events[*]", "[1]", "no_list"],
    ["$.length[*]", "[1]", "no_list"],
  ])("at %s of %j", (path, body, expected) => {
    expect(split(body, listAt(path))).toEqual(expected);
  });

  test("holds at most so many, and says at which path it was not found", () => {
    expect(split("[1,2]", listAt("$[*]"), 2)).toEqual(["1", "2"]);
    expect(split("[1,2,3]", listAt("$[*]"), 2)).toBe("too_many");
    expect(splitBatch(Buffer.from('{"a":1}'), listAt("$.a.b[*]"), 2)).toEqual({
      kind: "no_list",
      reason: "no list of messages at $.a.b",
    });
  });

  test("gives the items unchanged", () => {
    fuzz(
      (dice) => {
        const list = Array.from({ length: dice.below(7) }, () => anyJson(dice));
        return { list, text: JSON.stringify(list, null, dice.pick(SPACES)) };
      },
      ({ list, text }) => JSON.stringify(itemTexts(text).map((item) => JSON.parse(item))) === JSON.stringify(list),
    );
  });

  test("of items nested 100,000 deep takes no stack", () => {
    const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
    expect(itemTexts(`[${deep}, 1]`)).toEqual([deep, "1"]);
  });
});

describe("a path to a list", () => {
  test.each([
    ["$.events", "must end with [*], the items of a list"],
    ["events[*]", "the leading $ is missing"],
    ["$.a[0].b[*]", "leads through a list"],
    ["$.a[*].b[*]", "the wildcard * finds any number of values"],
    ["$..a[*]", ".. finds any number of values"],
    ["[*]", "the leading $ is missing"],
  ])("%s is refused", (path, reason) => {
    expect(() => parseListPath(path)).toThrow(reason);
  });
});

import { expect, test } from "@jest/globals";
import { parseJsonPath } from "../../../../src/core/receipt/jsonPath.ts";
import { hidePayload } from "../../../../src/core/trace/hidePayload.ts";

const hidden = (payload: string | null, ...paths: readonly string[]) => hidePayload(payload, paths.map(parseJsonPath));

test("fields are hidden wherever their path leads, an index to every item", () => {
  const payload = JSON.stringify({ a: { b: "secret", c: 1 }, list: [{ n: "one" }, { n: "two" }, 3], keep: "kept" });
  expect(JSON.parse(hidden(payload, "$.a.b", "$.list[1].n", "$.none").text ?? "")).toEqual({
    a: { b: "***", c: 1 },
    list: [{ n: "***" }, { n: "***" }, 3],
    keep: "kept",
  });
  expect(hidden(payload, "$").text).toBe('"***"');
  expect(hidden("[[1],[2]]", "$[0][0]").text).toBe('[["***"],["***"]]');
});

test("their values are masked in other texts, also escaped, and truth values are not", () => {
  const { hideIn } = hidden(JSON.stringify({ a: 'say "hé"', b: [4711, true, null, ""] }), "$.a", "$.b");
  expect(hideIn(String.raw`refused {"a":"say \"h\u00e9\"","b":4711}, true`)).toBe('refused {"a":"***","b":***}, true');
});

test("a value of one or two characters is masked only where it is the whole text", () => {
  const { hideIn } = hidden('{"a":"a","b":12}', "$.a", "$.b");
  expect([hideIn("a"), hideIn("12"), hideIn("12 bananas")]).toEqual(["***", "***", "12 bananas"]);
});

test("what is no JSON is not shown, and without paths all is", () => {
  expect(hidden("no json", "$.a").text).toBeNull();
  expect(hidden("no json").text).toBe("no json");
  expect(hidden(null, "$.a").text).toBeNull();
});

test("a number is masked with the digits that it was received with, which a double does not hold", () => {
  const { text, hideIn } = hidden('{"card":{"number":6304000000000000017},"n":1}', "$.card.number");
  expect(text).toBe('{"card":{"number":"***"},"n":1}');
  expect([hideIn("6304000000000000017"), hideIn("card 6304000000000000017 refused")]).toEqual([
    "***",
    "card *** refused",
  ]);
});

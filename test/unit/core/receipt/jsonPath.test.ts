import { describe, expect, test } from "@jest/globals";
import { evaluateJsonPath } from "../../../../src/core/receipt/jsonDocument.ts";
import { parseJsonPath } from "../../../../src/core/receipt/jsonPath.ts";

const find = (path: string, document: unknown): unknown => evaluateJsonPath(parseJsonPath(path), document);

describe("a definite path", () => {
  const document = {
    id: "a",
    none: null,
    zero: 0,
    "order-id": 7,
    "@type": "Order",
    "it's": "quoted",
    'say "hi"': 1,
    "a.b": { " c ": "blanks" },
    größe: "XL",
    "\u{1f600}": "smile",
    "a/b\\c\t": "escaped",
    items: [{ sku: "x" }, { sku: "y" }, [1, [2]]],
  };

  test.each([
    ["$", document],
    ["$.id", "a"],
    ["$.none", null],
    ["$.zero", 0],
    ["$.order-id", 7],
    ["$.@type", "Order"],
    ["$.größe", "XL"],
    ["$['it\\'s']", "quoted"],
    [`$["it's"]`, "quoted"],
    [`$['say "hi"']`, 1],
    ["$['a.b'][' c ']", "blanks"],
    ["$['\\ud83d\\ude00']", "smile"],
    ["$.\u{1f600}", "smile"],
    ["$['a\\/b\\\\c\\t']", "escaped"],
    ["$.items[0].sku", "x"],
    ["$.items[-2].sku", "y"],
    ["$.items[ 2 ][1] [0]", 2],
    ["$ .id", "a"],
  ])("%s finds its value", (path, value) => {
    expect(find(path, document)).toBe(value);
  });

  test.each([
    "$.missing",
    "$.id.length",
    "$.items.length",
    "$.items[3]",
    "$.items[-4]",
    "$.items['0']",
    "$.none.x",
    "$[0]",
    "$.constructor",
    "$.__proto__",
    "$.toString",
    "$.id[0]",
  ])("%s finds nothing", (path) => {
    expect(find(path, document)).toBeUndefined();
  });

  test("finds a member that is really called __proto__", () => {
    expect(find("$.__proto__.x", JSON.parse('{"__proto__":{"x":1}}'))).toBe(1);
  });
});

describe("any other path is refused with the place and the reason", () => {
  test.each([
    ["$..orderId", 2, ".. finds any number of values"],
    ["$.a..b", 4, ".. finds any number of values"],
    ["$.*", 3, "the wildcard * finds any number of values"],
    ["$[*]", 3, "the wildcard * finds any number of values"],
    ["$.items[?(@.a)]", 9, "the filter ? finds any number of values"],
    ["$[0:2]", 3, "a slice finds any number of values"],
    ["$[:2]", 3, "a slice finds any number of values"],
    ["$['a','b']", 6, "a union finds several values"],
    ["$[0,1]", 4, "a union finds several values"],
    ["$[(@.length-1)]", 3, "scripts are not evaluated"],
    ["$.length()", 9, "functions are not evaluated"],
    ["id", 1, "the leading $ is missing"],
    ["", 1, "the leading $ is missing"],
    ["$id", 2, 'expected . or [, found "i"'],
    ["$.", 3, "expected a name, found the end"],
    ["$.a.", 5, "expected a name, found the end"],
    ["$.'a'", 3, 'expected a name, found "\'"'],
    ["$[", 3, "expected a whole number or a quoted name, found the end"],
    ["$[0", 2, "a bracket opens that is never closed"],
    ["$['a'", 2, "a bracket opens that is never closed"],
    ["$['a", 3, "a quote opens that is never closed"],
    ["$['a' b]", 7, 'found "b"'],
    ["$['a\\x']", 5, "found an unknown escape"],
    ["$['a\\u12']", 5, "found an unknown escape"],
    ["$['\\ud83d']", 3, "the name holds half of a surrogate pair"],
    ["$['a\nb']", 5, "found a raw control character"],
    ["$.0", 3, "found a digit (write [0] for a list item, ['0'] for a member)"],
    ["$[]", 3, 'expected a whole number or a quoted name, found "]"'],
    ["$[01]", 3, 'expected a whole number or a quoted name, found "0"'],
    ["$[-0]", 3, 'expected a whole number or a quoted name, found "-"'],
    ["$[1.5]", 3, 'expected a whole number or a quoted name, found "1"'],
    ["$[9007199254740993]", 2, "the index is too large"],
    ["$.a ", 4, "blanks end it"],
    ["$.a b", 5, 'expected . or [, found "b"'],
  ])("%s", (path, character, reason) => {
    const refused = () => parseJsonPath(path);
    expect(refused).toThrow(`${JSON.stringify(path)} is not a usable JSONPath: at character ${character}, ${reason}`);
    expect(refused).toThrow("a path must name one value, for example $.order.id or $.items[0]['sku']");
  });
});

import { expect, test } from "@jest/globals";
import { JSONPath } from "jsonpath-plus";
import { evaluateJsonPath } from "../../../../src/core/receipt/jsonDocument.ts";
import { parseJsonPath } from "../../../../src/core/receipt/jsonPath.ts";

/**
 * Why the service reads definite paths itself (docs/dependencies.md, "Not used"): on the paths of jsonPath.test.ts and
 * on names that look like selectors, what jsonpath-plus finds instead. When a new version of it finds the same, this
 * fails: then the decision deserves another look.
 */

const DOCUMENT = {
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
const FAILS = expect.stringMatching(/^TypeError: /);

test.each([
  "$",
  "$.id",
  "$.none",
  "$.zero",
  "$.order-id",
  "$.größe",
  `$['say "hi"']`,
  "$['a.b'][' c ']",
  "$.\u{1f600}",
  "$.items[0].sku",
  "$.missing",
  "$.items[3]",
  "$.items[-4]",
  "$.none.x",
  "$[0]",
  "$.constructor",
  "$.__proto__",
  "$.toString",
])("%s: both find the same", (path) => {
  expect(theirs(path, DOCUMENT)).toBe(ours(path, DOCUMENT));
});

test.each([
  ["$.@type", "Order", FAILS],
  ["$['it\\'s']", "quoted", undefined],
  [`$["it's"]`, "quoted", undefined],
  ["$['\\ud83d\\ude00']", "smile", undefined],
  ["$['a\\/b\\\\c\\t']", "escaped", undefined],
  ["$.items[-2].sku", "y", undefined],
  ["$.items[ 2 ][1] [0]", 2, undefined],
  ["$ .id", "a", undefined],
  ["$.id.length", undefined, 1],
  ["$.items.length", undefined, 3],
  ["$.items['0']", undefined, { sku: "x" }],
  ["$.id[0]", undefined, "a"],
])("%s: jsonpath-plus finds something else", (path, our, their) => {
  expect(ours(path, DOCUMENT)).toEqual(our);
  expect(theirs(path, DOCUMENT)).toEqual(their);
});

test.each([
  ["$['a,b']", 3, [1, 2]],
  ["$['*']", 4, [1, 2, 3, 4, 5]],
  ["$['^']", 5, FAILS],
])("%s: jsonpath-plus does not find the member of that name", (path, our, their) => {
  const document = { a: 1, b: 2, "a,b": 3, "*": 4, "^": 5 };

  expect(ours(path, document)).toBe(our);
  expect(theirs(path, document)).toEqual(their);
});

function ours(path: string, document: object): unknown {
  return evaluateJsonPath(parseJsonPath(path), document);
}

/** What jsonpath-plus finds, or the text of its error. */
function theirs(path: string, json: object): unknown {
  try {
    return JSONPath({ path, json, wrap: false, eval: false });
  } catch (error) {
    return String(error);
  }
}

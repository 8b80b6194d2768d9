import { describe, expect, test } from "@jest/globals";
import { parseYaml } from "../../../src/config/yamlFile.ts";
import { inspect } from "./support.ts";

describe("a file that is no configuration", () => {
  test.each([
    ["a: 1\nb: [1", "line 2, column 6: unexpected end of the stream within a flow collection"],
    ["a: 1\na: 2\n", "line 2, column 1: duplicated mapping key (each key may stand once in its section)"],
    ["a: b: c\n", "line 1, column 5: bad indentation of a mapping entry"],
    ["a:\n\tb: 1\n", "line 2, column 1: "],
    ["a: *gone\n", "line 1, column 5: unidentified alias (quote a value that begins with * or !)"],
    ["a: 1\n---\nb: 2\n", "line 2, column 1: expected a single document in the stream, but found more"],
    ["- a\n", 'line 1, column 1: expected a mapping such as "database:", found a list'],
    ["text\n", 'line 1, column 1: expected a mapping such as "database:", found a single value'],
    ["", "line 1, column 1: the file is empty"],
    ["# nothing\n", "line 1, column 1: the file is empty"],
    ["---\n", "line 1, column 1: the file is empty"],
    ["a: 1\nb:\n  ? [x]\n  : y\n", "line 2, column 1: b holds a key that is not a text"],
    ["__proto__: { a: 1 }\n", 'line 1, column 1: the document holds the name "__proto__"'],
  ])("%j is refused with its place", (yaml, message) => {
    expect(inspect(yaml).problems).toEqual([expect.stringContaining(`svc.yml: ${message}`)]);
  });
});

describe("a file", () => {
  test("gives text for every scalar and null for what is missing", () => {
    const { root } = parseYaml("\uFEFFa: 0123\nb: no\nc: ~\nd:\ne: 'null'\nf: 1.10\n");
    expect([...root]).toEqual([
      ["a", "0123"],
      ["b", "no"],
      ["c", null],
      ["d", null],
      ["e", "null"],
      ["f", "1.10"],
    ]);
  });

  test("gives the line of each key and item", () => {
    const { lines } = parseYaml('a:\n  b: |\n    x\n    y\n  "c.d": [1,\n    2]\ne:\n  - f: 1\n    g: 2\n\n  - h\n');
    expect(Object.fromEntries(lines)).toEqual({
      a: 1,
      "a.b": 2,
      'a["c.d"]': 5,
      'a["c.d"][0]': 5,
      'a["c.d"][1]': 6,
      e: 7,
      "e[0]": 8,
      "e[0].f": 8,
      "e[0].g": 9,
      "e[1]": 11,
    });
  });
});

import { describe, expect, test } from "@jest/globals";
import jsonata from "jsonata";
import { LinearRegExp } from "../../../../src/core/transform/expression.ts";

interface Found {
  readonly match: readonly (string | undefined)[];
  readonly index: number;
  readonly lastIndex: number;
}

/** Every match as JSONata collects them: one `exec` after another, which ends at an empty match. */
function all(expression: { lastIndex: number; exec(text: string): RegExpExecArray | null }, text: string): Found[] {
  const found: Found[] = [];
  for (let match = expression.exec(text); match !== null; match = expression.exec(text)) {
    found.push({ match: [...match], index: match.index, lastIndex: expression.lastIndex });
    if (match[0] === "" || expression.lastIndex >= text.length) break;
  }
  return found;
}

describe("a linear regular expression", () => {
  test.each<readonly [RegExp, string]>([
    [/b/g, "abcb"],
    [/[a-z]+/g, "ab 12 cd"],
    [/(\w+)@(\w+)\.org/g, "ann@one.org, bob@two.org"],
    [/(a)|(b)|c/g, "abc"],
    [/(x)?y(z)?/g, "xyz y"],
    [/(?<year>\d{4})-(?<month>\d\d)/g, "2024-01 and 2025-12"],
    [/HELLO/gi, "hello Hello"],
    [/^\w+$/gm, "one\ntwo\nthree"],
    [/^a/g, "aaa"],
    [/a$/g, "aaa"],
    [/\bcat\b/g, "cat concat cat"],
    [/a\/b[/]c/g, "a/b/c a/b/c"],
    [/\u00e9\x41[\u4e00-\u9fff]/g, "éA中"],
    // biome-ignore lint/correctness/noEmptyCharacterClassInRegex: it stands for any character in JavaScript
    [/[^]/g, "a\n"],
    [/x*/g, "axx"],
    [/a*?b/g, "aab"],
    [/(?:ab)+/g, "ababab ab"],
    [/é+/g, "aéé😀é"],
    [/$^/g, "a"],
  ])("%s finds what the engine of JavaScript finds in %j", (expression, text) => {
    expect(all(new LinearRegExp(expression), text)).toEqual(all(new RegExp(expression), text));
  });

  test("gives undefined for a group that took no part", () => {
    const [, first, second] = new LinearRegExp(/(a)|(b)/g).exec("b") ?? [];
    expect([first, second]).toEqual([undefined, "b"]);
  });

  test("starts where lastIndex says, and begins anew after its last match", () => {
    const expression = new LinearRegExp(/a/g);
    expression.lastIndex = 1;
    expect(expression.exec("a.a")?.index).toBe(2);
    expect(expression.exec("a.a")).toBeNull();
    expect(expression.lastIndex).toBe(0);
    expression.lastIndex = 4;
    expect(expression.exec("a.a")).toBeNull();
  });

  test("searches another text from the start of that text", () => {
    const expression = new LinearRegExp(/\w+/g);
    expect(expression.exec("first")?.[0]).toBe("first");
    expression.lastIndex = 0;
    expect(expression.exec("second")?.[0]).toBe("second");
  });

  test("looks at what stands before lastIndex", () => {
    const expression = new LinearRegExp(/\bcat/g);
    expression.lastIndex = 3;
    expect(expression.exec("concat")).toBeNull();
  });

  test.each<readonly [RegExp, string]>([
    [/(?=a)b/, "lookahead is not supported"],
    [/x(?!a)/, "lookahead is not supported"],
    [/(?<=a)b/, "lookbehind is not supported"],
    [/(?<!a)b/, "lookbehind is not supported"],
    [/(a)\1/, "backreferences are not supported"],
    [/(?<n>a)\k<n>/, "backreferences are not supported"],
    [/(a)(b)(c)(d)(e)(f)(g)(h)\8/, "backreferences are not supported"],
    [/\\(a)\\\1/, "backreferences are not supported"],
    [/a{1001}/, "invalid repeat count {1001}"],
    [/((a{100}){100}){100}/, "invalid repeat count {100}"],
  ])("refuses %s and says why", (expression, message) => {
    expect(() => new LinearRegExp(expression)).toThrow(new Error(message));
  });

  test.each([/\\1/, /\\\\k<n>/, /\(?=/, /[(?=]/])("takes %s, which only looks like one of those", (expression) => {
    expect(() => new LinearRegExp(expression)).not.toThrow();
  });

  test("decides what costs a backtracking engine years", () => {
    // 2^100000 steps by backtracking: a test that ends has been decided otherwise.
    expect(new LinearRegExp(/(a+)+$/g).exec(`${"a".repeat(100_000)}!`)).toBeNull();
    expect(new LinearRegExp(/^(([a-z])+.)+[A-Z]([a-z])+$/g).exec("a".repeat(100_000))).toBeNull();
  });
});

describe("as the engine of JSONata, a linear regular expression", () => {
  const run = async (expression: string, input: unknown = {}) =>
    JSON.stringify(
      await jsonata(expression, { RegexEngine: LinearRegExp as unknown as RegExpConstructor }).evaluate(input),
    );
  const reference = async (expression: string, input: unknown = {}) =>
    JSON.stringify(await jsonata(expression).evaluate(input));

  test.each([
    '$match("ab1 cd2", /([a-z]+)(\\d)?/)',
    '$match("aXbX", /x/i, 1)',
    '$split("a1b22c", /\\d+/, 2)',
    '$split("abc", /x/)',
    '$replace("265USD", /([0-9]+)USD/, "$$$1")',
    '$replace("ada lovelace", /\\b([a-z])/, function($m) { $uppercase($m.match) })',
    '$replace("a-b-c", /-/, "+", 1)',
    '$map(["a1", "b", "c3"], function($v) { $contains($v, /\\d/) })',
    '($re := /\\d/; [$contains("1", $re), $contains("a", $re), $match("a1b2", $re).match])',
    '/(b)(c)?/("abd").{"start": start, "end": end, "groups": groups}',
    '["x1", "y2"][$contains(/1/)]',
    '$match("one\ntwo", /^\\w+$/m).match',
  ])("gives for %s what the standard engine gives", async (expression) => {
    expect(await run(expression)).toBe(await reference(expression));
  });

  test.each(['$split("abc", /x*/)', '$match("abc", /b*/)', '$replace("abc", /x*/, "-")'])(
    "stops at empty matches in %s as the standard engine does",
    async (expression) => {
      await expect(reference(expression)).rejects.toMatchObject({ code: "D1004" });
      await expect(run(expression)).rejects.toMatchObject({ code: "D1004" });
    },
  );
});

import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { compileHeaderFilter, type HeaderRule } from "../../src/core/receipt/receive.ts";
import { naivelyMatches } from "./naiveGlob.ts";
import { settings } from "./settings.ts";

const names = fc.constantFrom("x-a", "X-A", "x-b", "__proto__", "Constructor", "X-Ä");
const values = fc.constantFrom("", "a", "A", "b", "a.b", "__proto__", "*");
const patterns = fc.constantFrom("", "*", "**", "a*", "*.b", "a.**", "a");
const goodRules: fc.Arbitrary<HeaderRule> = fc.oneof(
  fc.record({ header: names, equals: values }),
  fc.record({ header: names, in: fc.array(values, { minLength: 1, maxLength: 3 }) }),
  fc.record({ header: names, matches: patterns }),
  fc.record({ header: names, exists: fc.constant(true) }),
);
const anyRules: fc.Arbitrary<HeaderRule> = fc.record(
  { header: names, equals: values, in: fc.array(values), matches: patterns, exists: fc.boolean() },
  { requiredKeys: ["header"] },
);
/** Headers as they come: each name once in one letter case. */
const headers = fc
  .uniqueArray(fc.tuple(names, values), { selector: ([name]) => name.toLowerCase(), maxLength: 4 })
  .map((entries): Record<string, string> => Object.assign(Object.create(null), Object.fromEntries(entries)));
const ruleLists = fc.array(goodRules, { maxLength: 3 });

/** The oracle: the words of the specification. */
function matchesRule(rule: HeaderRule, received: Readonly<Record<string, string>>): boolean {
  const header = Object.entries(received).find(([name]) => name.toLowerCase() === rule.header.toLowerCase());
  if (header === undefined) return false;
  const [, value] = header;
  if (rule.exists === true) return true;
  if (rule.equals !== undefined) return value === rule.equals;
  if (rule.in !== undefined) return rule.in.includes(value);
  return naivelyMatches(rule.matches ?? "", value);
}

describe("a header filter", () => {
  test("lets pass what matches every required rule and no excluded one", () => {
    fc.assert(
      fc.property(ruleLists, ruleLists, headers, (require, exclude, received) => {
        const passes =
          require.every((rule) => matchesRule(rule, received)) && !exclude.some((rule) => matchesRule(rule, received));
        expect(compileHeaderFilter({ require, exclude })(received)).toBe(passes);
      }),
      settings(),
    );
  });

  test("with a rule that has not exactly one test is refused, naming the header", () => {
    fc.assert(
      fc.property(anyRules, (rule) => {
        const tests = [rule.equals, rule.in, rule.matches, rule.exists === true ? true : undefined];
        const compile = () => compileHeaderFilter({ exclude: [rule] });
        if (tests.filter((each) => each !== undefined).length === 1) compile();
        else expect(compile).toThrow(JSON.stringify(rule.header));
      }),
      settings(),
    );
  });
});

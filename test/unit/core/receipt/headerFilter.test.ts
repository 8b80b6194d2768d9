import { describe, expect, test } from "@jest/globals";
import { compileHeaderFilter, type HeaderRule } from "../../../../src/core/receipt/headerFilter.ts";

describe("a header filter", () => {
  test("without rules lets everything pass", () => {
    expect(compileHeaderFilter({})({})).toBe(true);
  });

  test.each<[HeaderRule, string, boolean]>([
    [{ header: "x-kind", equals: "order" }, "order", true],
    [{ header: "x-kind", equals: "order" }, "Order", false],
    [{ header: "x-kind", in: ["a", "b"] }, "b", true],
    [{ header: "x-kind", in: ["a", "b"] }, "c", false],
    [{ header: "x-kind", matches: "orders.*" }, "orders.created", true],
    [{ header: "x-kind", matches: "orders.*" }, "orders.created.v1", false],
    [{ header: "x-kind", exists: true }, "", true],
    [{ header: "x-kind", equals: "" }, "", true],
  ])("rule %j on value %j matches: %s", (rule, value, matches) => {
    const headers = { "X-Kind": value };
    expect(compileHeaderFilter({ require: [rule] })(headers)).toBe(matches);
    expect(compileHeaderFilter({ exclude: [rule] })(headers)).toBe(!matches);
  });

  test.each<HeaderRule>([
    { header: "x-kind", equals: "" },
    { header: "x-kind", in: [""] },
    { header: "x-kind", matches: "**" },
    { header: "x-kind", exists: true },
  ])("rule %j does not match a message without the header", (rule) => {
    expect(compileHeaderFilter({ require: [rule] })({})).toBe(false);
    expect(compileHeaderFilter({ exclude: [rule] })({})).toBe(true);
  });

  test("needs every required rule and no excluded one", () => {
    const passes = compileHeaderFilter({
      require: [
        { header: "a", exists: true },
        { header: "b", exists: true },
      ],
      exclude: [
        { header: "c", exists: true },
        { header: "d", exists: true },
      ],
    });
    expect(passes({ A: "1", B: "1" })).toBe(true);
    expect(passes({ A: "1" })).toBe(false);
    expect(passes({ A: "1", B: "1", D: "1" })).toBe(false);
  });

  test.each<HeaderRule>([{ header: "x" }, { header: "x", exists: false }, { header: "x", equals: "a", in: ["b"] }])(
    "refuses rule %j, which has not exactly one test",
    (rule) => {
      expect(() => compileHeaderFilter({ require: [rule] })).toThrow(
        /rule on header "x" has \d tests; give exactly one/,
      );
    },
  );
});

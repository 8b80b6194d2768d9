import { describe, expect, test } from "@jest/globals";
import { compileExpression } from "../../../../src/core/transform/expression.ts";

describe("compileExpression", () => {
  test("gives an expression that can be evaluated", async () => {
    expect(
      await compileExpression('{ "total": $sum(items.price) }').evaluate({ items: [{ price: 2 }, { price: 3 }] }),
    ).toEqual({ total: 5 });
  });

  test.each([
    ["$sum(", 'Expected ")" before end of expression, at character 5 near "$sum("'],
    ["a b", 'Syntax error: "b", at character 3 near "a b"'],
    ["", "Unexpected end of expression"],
    ["/[/", "No terminating / in regular expression, at character 3"],
  ])("refuses %j with the reason and the position", (text, message) => {
    expect(() => compileExpression(text)).toThrow(message);
  });

  test("shows only the neighbourhood of the position", () => {
    expect(() => compileExpression(`${"a + ".repeat(50)}a b${" + a".repeat(50)}`)).toThrow(/near ".{30,40}"$/);
  });

  test("refuses an expression that is nested too deeply", () => {
    expect(() => compileExpression("(".repeat(100_000))).toThrow("the expression is nested too deeply to compile");
  });

  test.each([
    ["$match(a, /x(?=y)/)", "/x(?=y)/g cannot be run in linear time: lookahead is not supported, at character 18"],
    ["a[$contains(b, /(.)\\1/)]", "/(.)\\1/g cannot be run in linear time: backreferences are not supported, at"],
    [
      "{'k': [function($x) { $x ~> $replace(/(?<!a)b/i, '') }]}",
      "/(?<!a)b/gi cannot be run in linear time: lookbehind",
    ],
    ["a{b: $split(c, /(?!x)/)}", "lookahead"],
    ["a^($match(b, /(?=c)/))", "lookahead"],
    ["$ ~> |a|{'b': $match(c, /(?=d)/)}|", "lookahead"],
    ["a ? /(?=b)/ : /c/", "lookahead"],
    ["($r := /(?=b)/; 1)", "lookahead"],
  ])("refuses %j for a regular expression that cannot be run in linear time", (text, message) => {
    expect(() => compileExpression(text)).toThrow(message);
  });

  test("shows no more of a regular expression than it takes to find it", () => {
    expect(() => compileExpression(`/${"a".repeat(1000)}(?=b)/`)).toThrow(/^the regular expression .{100} cannot/);
  });

  test("takes an expression of many nodes", () => {
    const names = Array.from({ length: 5000 }, (_, i) => `a${i}`);
    expect(() => compileExpression(`$join([${names.join()}])`)).not.toThrow();
    expect(() => compileExpression(`[${"1,".repeat(200_000)}1]`)).not.toThrow();
  });
});

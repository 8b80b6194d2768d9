import { describe, expect, test } from "@jest/globals";
import { compileExpression } from "../../../src/core/expression.ts";

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
});

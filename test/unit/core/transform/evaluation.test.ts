import { afterEach, describe, expect, jest, test } from "@jest/globals";
import { compileEvaluation, type EvaluationLimits } from "../../../../src/core/transform/evaluation.ts";
import { TransformError } from "../../../../src/model/errors.ts";

/** Time enough on a busy machine: what is to exceed its time gets a limit of its own. */
const LIMITS: EvaluationLimits = { timeoutMs: 20_000, maxDepth: 100 };

const evaluate = (
  expression: string,
  input: unknown = {},
  limits: Partial<EvaluationLimits> = {},
  bindings: Readonly<Record<string, unknown>> = {},
) => compileEvaluation(expression, { ...LIMITS, ...limits }).evaluate(JSON.stringify(input), bindings);

/** The error of an evaluation that is to fail. */
async function failure(result: Promise<string>): Promise<{ readonly code: string; readonly message: string }> {
  const outcome = await result.catch((error: unknown) => error);
  if (!(outcome instanceof TransformError)) throw new Error(`no TransformError but ${String(outcome).slice(0, 200)}`);
  return { code: outcome.code, message: outcome.message };
}

afterEach(() => {
  jest.restoreAllMocks();
});

describe("an evaluation", () => {
  test("gives its result as JSON text", async () => {
    expect(
      await evaluate('{"id": id, "total": $sum(items.(qty * price))}', {
        id: "a",
        items: [
          { qty: 2, price: 3 },
          { qty: 1, price: 4.5 },
        ],
      }),
    ).toBe('{"id":"a","total":10.5}');
  });

  test.each<readonly [string, unknown, string]>([
    ["$", [1, [2]], "[1,[2]]"],
    ["$", null, "null"],
    ["null", {}, "null"],
    ['""', {}, '""'],
    ["false", {}, "false"],
    ["[]", {}, "[]"],
    ["{}", {}, "{}"],
    ["[a, b]", { a: 1 }, "[1]"],
    ['{"a": a, "b": b}', { a: 1 }, '{"a":1}'],
    ["a", { a: [] }, "[]"],
    ["a", { a: [{ b: null }] }, '[{"b":null}]'],
    ["a[]", { a: 1 }, "[1]"],
    ['"\\ud800"', {}, '"\\ud800"'],
  ])("of %s on %j gives %s", async (expression, input, result) => {
    expect(await evaluate(expression, input)).toBe(result);
  });

  test("sees the variables it is given, null included, and no other", async () => {
    const bindings = { topic: "t", eventType: null, headers: { "X-Tenant": "blue" } };
    expect(await evaluate('[$topic, $eventType, $headers."X-Tenant", $exists($source)]', {}, {}, bindings)).toBe(
      '["t",null,"blue",false]',
    );
  });

  test("takes a payload for what it is, also when it looks like one of JavaScript's own objects", async () => {
    const input = { a: { tuple: true }, toJSON: "x", __proto__: null, constructor: 1 };
    expect(await evaluate("$", input)).toBe(JSON.stringify(input));
    const proto = compileEvaluation("$merge([$, {'b': 1}])", LIMITS);
    expect(await proto.evaluate('{"__proto__":{"polluted":true}}', {})).toBe('{"__proto__":{"polluted":true},"b":1}');
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
  });

  test.each(['{"outerWrapper":1}', '{"a":[{"_jsonata\\u005flambda":true}]}'])(
    "refuses a payload with a name that marks JSONata's own objects: %s",
    async (input) => {
      const { evaluate: run } = compileEvaluation("1", LIMITS);
      expect(await failure(run(input, {}))).toMatchObject({ code: "invalid_input" });
      expect(await failure(run("{}", { headers: JSON.parse(input) }))).toMatchObject({ code: "invalid_input" });
      expect(await run('{"a":"outerWrapper"}', {})).toBe("1");
    },
  );

  test("does not run a regular expression by backtracking", async () => {
    const input = { s: `${"a".repeat(50_000)}!` };
    expect(await evaluate("$contains(s, /(a+)+$/)", input)).toBe("false");
    expect(await evaluate('$eval("$contains(s, /(a+)+$/)")', input)).toBe("false");
  });
});

describe("an evaluation that gives nothing", () => {
  test.each(["a", "a.b.c", "items[0]", "$undefined", "()"])("of %s fails", async (expression) => {
    expect(await failure(evaluate(expression))).toEqual({
      code: "no_result",
      message: "the expression gave nothing for this input: no path of it found a value",
    });
  });

  test.each([
    "$sum",
    "function($x) { $x }",
    '{"a": [$sum]}',
    '{"a": /a/}',
    "$substring(?, 1)",
    "$sum ~> $string",
    '/a/("a")',
  ])("but a function in %s fails", async (expression) => {
    expect(await failure(evaluate(expression))).toEqual({
      code: "no_result",
      message: "the result holds a function, which JSON cannot",
    });
  });

  test("but a number that is not finite fails", async () => {
    const tooLarge = compileEvaluation('{"a": [a]}', LIMITS).evaluate('{"a":1e999}', {});
    expect(await failure(tooLarge)).toEqual({
      code: "no_result",
      message: "the result holds the number Infinity, which JSON cannot",
    });
  });
});

describe("an evaluation fails", () => {
  test("as invalid_expression before it runs when the expression does not compile", () => {
    const compile = (expression: string) => () => compileEvaluation(expression, LIMITS);
    expect(compile("$sum(")).toThrow(
      new TransformError("invalid_expression", 'Expected ")" before end of expression, at character 5 near "$sum("'),
    );
    expect(compile("/a(?=b)/")).toThrow(TransformError);
  });

  test.each(["", "{", "undefined", "\ufeff{}", "{'a':1}"])("as invalid_input when the input is %j", async (input) => {
    expect(await failure(compileEvaluation("$", LIMITS).evaluate(input, {}))).toEqual({
      code: "invalid_input",
      message: "the input is not a JSON document",
    });
  });

  test.each<readonly [string, unknown, string]>([
    ["a + 1", { a: "x" }, 'The left side of the "+" operator must evaluate to a number, at character 3 near "a + 1"'],
    ['$error("no total")', {}, 'no total, at character 7 near "$error(\\"no total\\")"'],
    ["$unknown(1)", {}, 'Attempted to invoke a non-function, at character 9 near "$unknown(1)"'],
    ["$number(a)", { a: "x" }, 'Unable to cast value to a number: "x", at character 8 near "$number(a)"'],
    ['$eval("1 + a", {"a": "x"})', {}, 'The right side of the "+" operator must evaluate to a number, at character 3'],
    ['$eval("$sum(")', {}, "Syntax error in expression passed to function eval"],
    ['$eval("/(?=a)/")', {}, "lookahead is not supported"],
    ["$formatNumber(1, '0', {'decimal-separator': ''})", {}, ""],
  ])("with a short reason and a position: %s", async (expression, input, message) => {
    const error = await failure(evaluate(expression, input));
    expect(error.code).toBe("failed");
    expect(error.message).toContain(message);
  });

  test("with a reason of bounded length, however long the value it quotes", async () => {
    const { message } = await failure(evaluate("$number(a)", { a: "x".repeat(100_000) }));
    expect(message).toMatch(/^Unable to cast value to a number: "x+…$/);
    expect(message).toHaveLength(300);
  });

  test("without a cause, which would hold the payload", async () => {
    const error = await evaluate("$number(a)", { a: "x" }).catch((thrown: unknown) => thrown);
    expect((error as Error).cause).toBeUndefined();
  });
});

describe("the time limit of an evaluation", () => {
  test.each([
    ["an endless tail recursion", "($f := function($x) { $f($x + 1) }; $f(1))"],
    ["nested loops", "$count($map([1..100000], function($v) { $map([1..100000], function($w) { $w }) }))"],
    ["a recursion inside $eval", '$eval("($f := function($x) { $f($x + 1) }; $f(1))")'],
    ["a member of an object", '{"a": ($f := function($x) { $f($x + 1) }; $f(1)), "b": 1}'],
  ])("ends %s", async (_, expression) => {
    expect(await failure(evaluate(expression, {}, { timeoutMs: 20 }))).toEqual({
      code: "timeout",
      message: "the evaluation took longer than 20 ms (timeoutMs)",
    });
  });

  test("counts for a built-in function too, though it cannot be interrupted", async () => {
    const input = Array.from({ length: 600 }, (_, n) => ({ n, text: "x".repeat(20) }));
    expect(await failure(evaluate("$distinct($)", input, { timeoutMs: 1 }))).toMatchObject({ code: "timeout" });
  });

  test("does not depend on the wall clock, which may jump", async () => {
    const now = jest.spyOn(Date, "now");
    let wall = 0;
    now.mockImplementation(() => {
      wall += 3_600_000;
      return wall;
    });
    expect(await evaluate("$sum($map([1..100], function($v) { $v * 2 }))")).toBe("10100");
  });
});

describe("the depth limit of an evaluation", () => {
  const recursion = (depth: number) => `($f := function($n) { $n = 0 ? 0 : 1 + $f($n - 1) }; $f(${depth}))`;

  test("ends a deeper recursion, and no other", async () => {
    expect(await evaluate(recursion(10))).toBe("10");
    expect(await failure(evaluate(recursion(100)))).toEqual({
      code: "too_deep",
      message: "the recursion is deeper than 100 (maxDepth)",
    });
    expect(await evaluate(recursion(100), {}, { maxDepth: 1000 })).toBe("100");
  });

  test("does not count tail calls, which need no depth", async () => {
    expect(await evaluate("($f := function($n, $sum) { $n = 0 ? $sum : $f($n - 1, $sum + $n) }; $f(1000, 0))")).toBe(
      "500500",
    );
  });

  test.each<readonly [string, string]>([
    ["an object of many members", `{${Array.from({ length: 300 }, (_, n) => `"k${n}": a.b`).join(",")}}`],
    ["an array of many members", `[${"a.b,".repeat(300)}a.b]`],
    [
      "objects in objects",
      `{${Array.from({ length: 150 }, (_, n) => `"k${n}": {"a": a.b, "b": [a.b, a.b]}`).join(",")}}`,
    ],
    ["many keys of a group-by", "items{key: $count($)}"],
    ["a function applied to many items", "$map(items, function($i) { {'key': $i.key, 'twice': [$i.key, $i.key]} })"],
    [
      "an object of function calls",
      `($f := function($x) { [$x, $x] }; {${Array.from({ length: 150 }, (_, n) => `"k${n}": $f(a.b)`).join(",")}})`,
    ],
    ["many keys inside $eval", '$eval("items{key: [$count($), 1]}")'],
  ])("is not exceeded by %s, which is wide and not deep", async (_, expression) => {
    const items = Array.from({ length: 300 }, (_, n) => ({ key: `k${n}` }));
    const result = JSON.parse(await evaluate(expression, { a: { b: 1 }, items })) as object;
    expect(Object.keys(result).length).toBeGreaterThanOrEqual(150);
  });

  test.each([
    ["in the last member of an object", `{"a": 1, "b": [a, ${recursion(100)}]}`],
    ["in one of many groups", `items{key: ${recursion(100)}}`],
    ["in $eval", `$eval(${JSON.stringify(recursion(100))})`],
  ])("counts a recursion %s", async (_, expression) => {
    const items = Array.from({ length: 200 }, (_, n) => ({ key: `k${n}` }));
    expect(await failure(evaluate(expression, { a: 1, items }))).toMatchObject({ code: "too_deep" });
  });

  test("is the same wherever the expression stands among others", async () => {
    const deepest = async (wrap: (expression: string) => string): Promise<number> => {
      for (let depth = 1; ; depth++) {
        const result = await evaluate(wrap(recursion(depth))).catch(() => "failed");
        if (result === "failed") return depth - 1;
      }
    };
    const alone = await deepest((expression) => `[1, ${expression}][1]`);
    const afterOthers = await deepest((expression) => `[${"a.b,".repeat(120)} 1, ${expression}][1]`);
    expect(alone).toBeGreaterThan(10);
    expect(afterOthers).toBe(alone);
  });

  test("holds for input that is nested too deeply for JavaScript", async () => {
    const nested = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
    expect(await failure(compileEvaluation("$", LIMITS).evaluate(nested, {}))).toMatchObject({ code: "too_deep" });
    expect(await failure(compileEvaluation("**", LIMITS).evaluate(nested, {}))).toMatchObject({ code: "too_deep" });
  });
});

describe("the size limit of an evaluation", () => {
  test.each(["[1..10000000]", "[1..100000000]", "($a := [1..900000]; $append($a, $a))", "[1..1000].([1..2000])"])(
    "ends %s",
    async (expression) => {
      expect(await failure(evaluate(expression))).toEqual({
        code: "too_large",
        message: "an array would have more than 1000000 items",
      });
    },
  );

  test("refuses a text longer than JavaScript can hold", async () => {
    expect(await failure(evaluate('$pad("", 1e9)'))).toEqual({
      code: "too_large",
      message: "a text or an array would be longer than can be held",
    });
  });

  test.each([
    ["one long text", '$pad("", 17000000)'],
    ["many texts that share memory", '($t := $pad("", 100000); $map([1..1000], function() { $t }))'],
    [
      "a text that was put together from itself",
      '($f := function($t, $n) { $n = 0 ? $t : $f($t & $t, $n - 1) }; $f("ab", 26))',
    ],
    ["a text that needs escapes", '$pad("", 9000000, "\\"")'],
  ])("refuses a result that is too long for a message: %s", async (_, expression) => {
    expect(await failure(evaluate(expression))).toEqual({
      code: "too_large",
      message: "the result is longer than 16777216 characters",
    });
  });
});

describe("a compiled evaluation", () => {
  test("can be used again and again, also after failures", async () => {
    const { evaluate: run } = compileEvaluation(
      '($f := function($n) { $n = 0 ? 0 : 1 + $f($n - 1) }; {"depth": $f(n), "list": [n, $topic, s & ""]})',
      LIMITS,
    );
    for (let round = 0; round < 3; round++) {
      expect(await run('{"n":3,"s":"a"}', { topic: "x" })).toBe('{"depth":3,"list":[3,"x","a"]}');
      expect(await failure(run('{"n":500}', {}))).toMatchObject({ code: "too_deep" });
      expect(await failure(run('{"n":"a"}', {}))).toMatchObject({ code: "failed" });
      expect(await failure(run("{", {}))).toMatchObject({ code: "invalid_input" });
      expect(await run('{"n":1,"s":"b"}', {})).toBe('{"depth":1,"list":[1,"b"]}');
    }
  });

  test("has no variable that an earlier evaluation set", async () => {
    const { evaluate: run } = compileEvaluation(
      "($before := $seen; $seen := a; [$exists($before), $exists($topic)])",
      LIMITS,
    );
    expect(await run('{"a":1}', { topic: "t" })).toBe("[false,true]");
    expect(await run('{"a":2}', {})).toBe("[false,false]");
  });

  test.each([
    ["few nodes", '{"a": $error("first"), "b": $sum(items.(price * 2)), "c": items[price > 5]}'],
    ["functions", '{"a": $error("first"), "b": $map(items, function($i) { $i.price * 2 }), "c": 1}'],
  ])("leaves nothing running behind a failure: members beside the failed one (%s)", async (_, expression) => {
    const input = JSON.stringify({ items: Array.from({ length: 20_000 }, (_, price) => ({ price })) });
    const { evaluate: run } = compileEvaluation(expression, LIMITS);
    const reads = jest.spyOn(performance, "now");
    expect(await failure(run(input, {}))).toMatchObject({ code: "failed", message: expect.stringContaining("first") });
    const afterFailure = reads.mock.calls.length;
    // Every 16th step reads the clock, so members that still run would read it over 1,000 times. Node and the test
    // runner read the same clock now and then.
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
    expect(reads.mock.calls.length - afterFailure).toBeLessThan(50);
    expect(afterFailure).toBeLessThan(500);
  });
});

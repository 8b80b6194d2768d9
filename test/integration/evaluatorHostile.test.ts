import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import type { Evaluation } from "../../src/ports/evaluator.ts";
import { type TestEvaluator, testEvaluator } from "../support/evaluator.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { type LogLine, recordingLog } from "../support/recorders.ts";
import { ENDLESS, evaluation, failure, longestTurnDuring, QUICK, UNINTERRUPTIBLE } from "./evaluations.ts";

failOnLeaks();

/** What no limit of an evaluation itself ends in time, and what does: with each, the caller's event loop goes on. */
const HOSTILE: readonly (readonly [string, Evaluation, readonly string[]])[] = [
  ["a long range", evaluation("[1..10000000]"), ["too_large"]],
  [
    "nested loops over long ranges",
    evaluation(
      "$map([1..900000], function($v) { $map([1..900000], function($w) { $v * $w }) })",
      {},
      { timeoutMs: 200 },
    ),
    ["timeout"],
  ],
  ["an endless recursion", evaluation(ENDLESS, {}, { timeoutMs: 200 }), ["timeout"]],
  ["a deep recursion", evaluation("($f := function($x) { 1 + $f($x + 1) }; $f(1))"), ["too_deep"]],
  ["$distinct over many objects", UNINTERRUPTIBLE, ["timeout"]],
  [
    "$spread over many objects",
    evaluation(
      "$spread($)",
      Array.from({ length: 80_000 }, (_, n) => ({ [`k${n}`]: n })),
      { timeoutMs: 200 },
    ),
    ["timeout"],
  ],
  [
    "a wildcard over many arrays",
    evaluation("*", Object.fromEntries(Array.from({ length: 80_000 }, (_, n) => [`k${n}`, [n]])), { timeoutMs: 200 }),
    ["timeout"],
  ],
  ["arrays appended to each other", evaluation("$reduce([1..200000], $append)", {}, { timeoutMs: 200 }), ["timeout"]],
  ["a text of a billion characters", evaluation('$pad("", width)', { width: 1e9 }), ["too_large"]],
  [
    "a text that fills the memory in one piece",
    evaluation('$uppercase($pad("", width))', { width: 4e8 }),
    ["too_large"],
  ],
  [
    "texts that fill the memory together",
    evaluation('$map([1..1000], function($v) { $uppercase($pad("", 20000000)) })'),
    ["too_large"],
  ],
  [
    "arrays that fill the memory together",
    evaluation("$map([1..1000], function($v) { {'a': [1..900000]} })"),
    ["too_large"],
  ],
  [
    "a result that is endless when written out",
    evaluation("($f := function($a, $n) { $n = 0 ? $a : $f([[$a], [$a]], $n - 1) }; $f(1, 30))"),
    ["too_large"],
  ],
];

describe("a hostile evaluation", () => {
  let evaluator: TestEvaluator;
  beforeAll(async () => {
    evaluator = testEvaluator();
    await evaluator.start();
  });
  afterAll(() => evaluator.close());

  test.each(HOSTILE)(
    "leaves the event loop of its caller alone and ends: %s",
    async (name, hostile, codes) => {
      const before = evaluator.evaluate(QUICK);
      const ended = failure(evaluator.evaluate({ ...hostile, lane: name }));
      const behind = Array.from({ length: 100 }, (_, n) => evaluator.evaluate(evaluation("n", { n })));
      // Each of these takes 200 ms or more where it is not ended sooner by a limit.
      expect(await longestTurnDuring(ended)).toBeLessThan(100);
      expect(codes).toContain((await ended).code);
      expect(await before).toBe("42");
      expect(await Promise.all(behind)).toEqual(Array.from({ length: 100 }, (_, n) => String(n)));
    },
    60_000,
  );

  test("is decided in time when it aims at a backtracking regular expression", async () => {
    const input = { text: `${"a".repeat(27)}!` };
    expect(await evaluator.evaluate(evaluation("$contains(text, /(a+)+$/)", input))).toBe("false");
  });

  test("among quick ones of the same expression is the only one that fails", async () => {
    await using fresh = testEvaluator();
    const items = Array.from({ length: 3 }, (_, n) => ({ n }));
    for (let n = 0; n < 20; n++) await fresh.evaluate({ ...UNINTERRUPTIBLE, input: JSON.stringify(items) });
    const results = Array.from({ length: 60 }, (_, n) =>
      n === 30 || n === 33
        ? failure(fresh.evaluate(UNINTERRUPTIBLE)).then(({ code }) => code)
        : fresh.evaluate({ ...UNINTERRUPTIBLE, input: JSON.stringify(items.slice(0, 1 + (n % 3))) }),
    );
    const expected = Array.from({ length: 60 }, (_, n) =>
      n === 30 || n === 33 ? "timeout" : JSON.stringify(items.slice(0, 1 + (n % 3))),
    );
    expect(await Promise.all(results)).toEqual(expected);
  }, 60_000);

  test("is told to the log without its payload", async () => {
    const { log, lines } = recordingLog();
    await using logging = testEvaluator({ log });
    expect(await failure(logging.evaluate(UNINTERRUPTIBLE))).toEqual({
      code: "timeout",
      message: "the evaluation took longer than 200 ms (timeoutMs) and was ended",
    });
    expect(lines.length).toBeGreaterThan(0);
    const isEndOfWorker = ({ message, fields }: LogLine) =>
      message === "an evaluation worker ended" &&
      Object.keys(fields).sort().join() === "lane,overdue,reason,unanswered";
    expect(lines.filter((line) => !isEndOfWorker(line))).toEqual([]);
  });
});

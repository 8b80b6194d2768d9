import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import type { Evaluation } from "../../src/ports/evaluator.ts";
import { type TestEvaluator, testEvaluator } from "../support/evaluator.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { type LogLine, recordingLog } from "../support/recorders.ts";
import { ENDLESS, evaluation, failure, longestTurnDuring, QUICK, UNINTERRUPTIBLE } from "./evaluations.ts";

failOnLeaks();

/**
 * Evaluations that no limit of their own ends in time, and evaluations that such a limit ends: none blocks the caller's
 * event loop.
 */
const HOSTILE: readonly (readonly [string, Evaluation, readonly string[]])[] = [
  ["an endless recursion", evaluation(ENDLESS, {}, { timeoutMs: 200 }), ["timeout"]],
  ["$distinct over many objects", UNINTERRUPTIBLE, ["timeout"]],
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
      // Each of these takes 200 ms or more unless a limit ends it sooner.
      expect(await longestTurnDuring(ended)).toBeLessThan(100);
      expect(codes).toContain((await ended).code);
      expect(await before).toBe("42");
      expect(await Promise.all(behind)).toEqual(Array.from({ length: 100 }, (_, n) => String(n)));
    },
    60_000,
  );

  test("among quick ones of the same expression is the only failure", async () => {
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

  test("is logged without its payload", async () => {
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

import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { type TestEvaluator, testEvaluator } from "../support/evaluator.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { recordingLog } from "../support/recorders.ts";
import { ENDLESS, evaluation, failure, processorTicks, QUICK, UNINTERRUPTIBLE, workerIds } from "./evaluations.ts";

failOnLeaks();

describe("an evaluator", () => {
  let evaluator: TestEvaluator;
  beforeAll(async () => {
    evaluator = testEvaluator();
    await evaluator.start();
  });
  afterAll(() => evaluator.close());

  test("carries every text unharmed in both directions", async () => {
    const text = '\u0000\n\u2028\ud800 "\\é😀';
    expect(await evaluator.evaluate(evaluation("$", [text]))).toBe(JSON.stringify([text]));
    const large = "é".repeat(3_000_000);
    expect(await evaluator.evaluate(evaluation("$", large))).toBe(JSON.stringify(large));
  });

  test("gives each of 1,000 concurrent evaluations its own result", async () => {
    await using pair = testEvaluator({ workers: 2 });
    const results = await Promise.all(
      Array.from({ length: 1000 }, async (_, n) => {
        const bindings = { messageId: `m${n}` };
        const expression = n % 3 === 0 ? "[n, $messageId]" : `[n, $messageId, ${n % 7}]`;
        return pair.evaluate(evaluation(expression, { n }, { bindings }));
      }),
    );
    expect(results).toEqual(
      Array.from({ length: 1000 }, (_, n) => (n % 3 === 0 ? `[${n},"m${n}"]` : `[${n},"m${n}",${n % 7}]`)),
    );
  });

  test("takes more than a worker holds at a time, small and large together", async () => {
    const sizes = Array.from({ length: 200 }, (_, n) => (n % 20 === 0 ? 2_000_000 : n));
    const lengths = sizes.map((size) => evaluator.evaluate(evaluation("$length($)", "x".repeat(size))));
    expect(await Promise.all(lengths)).toEqual(sizes.map(String));
  });

  test("runs evaluations beside each other in several workers", async () => {
    await using pair = testEvaluator({ workers: 2 });
    await pair.start();
    const long = failure(pair.evaluate(evaluation(ENDLESS)));
    await pair.evaluate(QUICK);
    await pair.close();
    expect(await long).toMatchObject({ code: "closed" });
  });

  test("has a short evaluation's result while a long one behind it runs", async () => {
    const order: string[] = [];
    const short = evaluator.evaluate(QUICK).then(() => order.push("short"));
    const long = failure(evaluator.evaluate(evaluation(ENDLESS, {}, { timeoutMs: 300 }))).then(() =>
      order.push("long"),
    );
    await short;
    expect(order).toEqual(["short"]);
    await long;
  });

  test("takes a time limit that is longer than a timer can hold", async () => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error) => warnings.push(warning);
    process.on("warning", onWarning);
    expect(await evaluator.evaluate({ ...QUICK, timeoutMs: 2 ** 40 })).toBe("42");
    process.off("warning", onWarning);
    expect(warnings).toEqual([]);
  });

  test("refuses variables that are no JSON, and continues", async () => {
    const circular: Record<string, unknown> = {};
    circular.self = circular;
    const refused = evaluator.evaluate(evaluation("1", {}, { bindings: circular }));
    expect(await failure(refused)).toMatchObject({ code: "failed" });
    expect(await evaluator.evaluate(QUICK)).toBe("42");
  });
});

describe("lanes", () => {
  const INNOCENT = { ...QUICK, lane: "innocent" };
  const HOSTILE_LANE = { ...UNINTERRUPTIBLE, lane: "hostile" };

  /** Evaluates for an innocent lane until `stop` is called, four at a time. */
  function innocents(evaluator: TestEvaluator) {
    let stopping = false;
    let done = 0;
    const ended = Promise.all(
      [1, 2, 3, 4].map(async () => {
        while (!stopping) {
          expect(await evaluator.evaluate(INNOCENT)).toBe("42");
          done++;
        }
      }),
    );
    return {
      get done() {
        return done;
      },
      async stop() {
        stopping = true;
        await ended;
      },
    };
  }

  test.each([
    ["one after another", 1],
    ["in a burst", 8],
  ])(
    "of innocent senders continue while hostile payloads come %s",
    async (_, atOnce) => {
      const { log, lines } = recordingLog();
      await using evaluator = testEvaluator({ log });
      await evaluator.start();
      const innocent = innocents(evaluator);
      const during: number[] = [];
      let before = 0;
      for (let round = 0; round < 8 / atOnce; round++) {
        const burst = Array.from({ length: atOnce }, async () => {
          expect(await failure(evaluator.evaluate(HOSTILE_LANE))).toMatchObject({ code: "timeout" });
          during.push(innocent.done - before);
          before = innocent.done;
        });
        await Promise.all(burst);
      }
      await innocent.stop();
      // The first one is met by the shared worker. Each other one runs for 450 ms, and 450 ms pass before it.
      expect(during).toHaveLength(8);
      for (const count of during.slice(1)) expect(count).toBeGreaterThan(20);
      // None is run a second time.
      expect(lines.filter(({ message }) => message === "an evaluation worker ended")).toHaveLength(8);
    },
    60_000,
  );

  test("that exceed their time step by step are served apart too", async () => {
    // They end in time by themselves: a busy machine is no reason to end their worker.
    await using evaluator = testEvaluator({ graceMs: 8000 });
    await evaluator.start();
    const [shared = 0] = workerIds();
    const endless = evaluation(ENDLESS, {}, { lane: "endless", timeoutMs: 50 });
    expect(await failure(evaluator.evaluate(endless))).toMatchObject({ code: "timeout" });
    const ticks = processorTicks(shared);
    for (let n = 0; n < 3; n++) await failure(evaluator.evaluate({ ...endless, timeoutMs: 300 }));
    expect(processorTicks(shared) - ticks).toBeLessThan(50);
    expect(workerIds()).toHaveLength(2);
  });

  test("are bounded: what floods the queue is refused, and others are not", async () => {
    await using evaluator = testEvaluator();
    await evaluator.start();
    const large = { ...evaluation("$length($)", "x".repeat(1024 * 1024)), lane: "flood", refusable: true };
    const outcomes = Array.from({ length: 100 }, async () => evaluator.evaluate(large).catch(({ code }) => code));
    const other = evaluator.evaluate({ ...QUICK, lane: "other", refusable: true });
    const delivery = evaluator.evaluate({ ...large, lane: "delivery", refusable: false });
    expect(await other).toBe("42");
    expect(await delivery).toBe(String(1024 * 1024));
    const results = await Promise.all(outcomes);
    const refused = results.filter((result) => result === "busy").length;
    expect(results.filter((result) => result === String(1024 * 1024))).toHaveLength(100 - refused);
    // Half of 32 million characters may wait in one lane.
    expect(refused).toBeGreaterThan(80);
    expect(refused).toBeLessThan(90);
  });
});

import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "@jest/globals";
import { createExpressions } from "../../src/core/receipt/expressions.ts";
import { TransformError } from "../../src/model/errors.ts";
import { EVALUATOR_SCRIPT, type TestEvaluator, testEvaluator } from "../support/evaluator.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { builtModule, useProcesses } from "../support/processes.ts";
import { busyWorker, ENDLESS, evaluation, failure, processorTicks, QUICK, workerIds } from "./evaluations.ts";

const processes = useProcesses();
failOnLeaks();

describe("a worker that is killed", () => {
  test("while it evaluates takes nothing with it: what it had runs again", async () => {
    await using evaluator = testEvaluator();
    await evaluator.start();
    const idle = new Map(workerIds().map((pid) => [pid, processorTicks(pid) + 5]));
    // A second of work and more on any machine, so that it is not over before it is seen.
    const results = Array.from({ length: 300 }, (_, n) =>
      evaluator.evaluate(evaluation("$sum($map([1..3000], function($i) { $i * n }))", { n })),
    );
    process.kill(await busyWorker(idle), "SIGKILL");
    expect(await Promise.all(results)).toEqual(Array.from({ length: 300 }, (_, n) => String((n * 3000 * 3001) / 2)));
  });

  test("twice under one evaluation fails that one, and the next gets a new worker", async () => {
    await using evaluator = testEvaluator();
    const endless = failure(evaluator.evaluate(evaluation(ENDLESS, {}, { timeoutMs: 20_000 })));
    const first = await busyWorker();
    process.kill(first, "SIGKILL");
    await eventually(() => expect(workerIds()).not.toContain(first));
    process.kill(await busyWorker(), "SIGKILL");
    expect(await endless).toEqual({
      code: "lost",
      message: "the evaluation lost its worker twice: the last one was ended by SIGKILL",
    });
    expect(await evaluator.evaluate(QUICK)).toBe("42");
  });

  test("once under the expression for a key changes no key", async () => {
    await using evaluator = testEvaluator();
    await evaluator.start();
    const failures: string[] = [];
    const expressions = createExpressions({
      source: "orders",
      settings: { idempotencyKeyExpression: "id" },
      evaluator,
      onFailure: (_, code) => failures.push(code),
    });
    const [first = 0] = workerIds();
    // It takes the evaluation, and never gets to it.
    process.kill(first, "SIGSTOP");
    const computed = expressions?.({ text: '{"id":"a"}', headers: {} });
    // The pool posts in the turn after the call.
    await new Promise(setImmediate);
    await new Promise(setImmediate);
    process.kill(first, "SIGKILL");
    expect(await computed).toEqual({ kind: "computed", values: { idempotencyKey: "a" } });
    expect(failures).toEqual([]);
  });

  test("while it is idle is replaced at the next evaluation", async () => {
    await using evaluator = testEvaluator();
    await evaluator.evaluate(QUICK);
    for (const pid of workerIds()) process.kill(pid, "SIGKILL");
    expect(await evaluator.evaluate(QUICK)).toBe("42");
  });
});

describe("closing an evaluator", () => {
  test("rejects what runs, what a worker has and what waits, once each, and ends the workers", async () => {
    await using evaluator = testEvaluator();
    await evaluator.evaluate(QUICK);
    const running = failure(evaluator.evaluate(evaluation(ENDLESS, {}, { timeoutMs: 60_000 })));
    const waiting = Array.from({ length: 500 }, () => failure(evaluator.evaluate(QUICK)));
    await busyWorker();
    await Promise.all([evaluator.close(), evaluator.close()]);
    for (const outcome of await Promise.all([running, ...waiting])) {
      expect(outcome).toEqual({ code: "closed", message: "the evaluator was closed" });
    }
    expect(workerIds()).toEqual([]);
    expect(await failure(evaluator.evaluate(QUICK))).toMatchObject({ code: "closed" });
    await expect(evaluator.start()).rejects.toThrow("the evaluator was closed");
  });

  test("ends a worker that is just starting", async () => {
    const evaluator = testEvaluator();
    const started = expect(evaluator.start()).rejects.toThrow("the evaluator was closed");
    const result = failure(evaluator.evaluate(QUICK));
    await evaluator.close();
    await started;
    expect(await result).toMatchObject({ code: "closed" });
    expect(workerIds()).toEqual([]);
  });

  test("is done at once when nothing was evaluated", async () => {
    await testEvaluator().close();
  });
});

describe("a worker that cannot start", () => {
  const missing = new URL("missing.js", EVALUATOR_SCRIPT);
  const failed = async (evaluator: TestEvaluator) => evaluator.evaluate(QUICK).catch((error: unknown) => error);

  test("rejects what waits and says why, and is no failure of the expression", async () => {
    await using evaluator = testEvaluator({ script: missing, workers: 2 });
    const results = await Promise.all([failed(evaluator), failed(evaluator)]);
    for (const error of [...results, await failed(evaluator)]) {
      expect(error).not.toBeInstanceOf(TransformError);
      expect(String(error)).toContain("no evaluation worker can be started: it ended with code 1: ");
      expect(String(error)).toContain("missing.js");
    }
  });

  test("rejects the start", async () => {
    await using evaluator = testEvaluator({ script: missing });
    await expect(evaluator.start()).rejects.toThrow("no evaluation worker can be started");
  });
});

describe("the process of an evaluator", () => {
  const script = (body: string) => `
    import { EvaluatorPool } from ${JSON.stringify(builtModule("src/runtime/evaluation/pool.ts"))};
    const pool = new EvaluatorPool({ script: new URL(${JSON.stringify(EVALUATOR_SCRIPT.href)}), workers: 1, memoryLimitMb: 64 });
    const evaluate = (expression, timeoutMs = 10000) =>
      pool.evaluate({ expression, input: "{}", bindings: {}, timeoutMs, maxDepth: 100 });
    ${body}`;

  test("leaves no worker behind when it is killed", async () => {
    const body = `await evaluate("1"); console.log("ready"); setInterval(() => {}, 1000);`;
    const child = processes.node(["--input-type=module", "-e", script(body)]);
    await child.waitForLine(/ready/);
    const [worker = 0] = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8")
      .trim()
      .split(" ")
      .map(Number);
    expect(worker).toBeGreaterThan(0);
    child.kill("SIGKILL");
    await child.exited;
    await eventually(() => expect(readdirSync("/proc")).not.toContain(String(worker)));
  });

  test("keeps its workers through signals that a terminal sends to both", async () => {
    const body = `
      process.on("SIGINT", () => {});
      process.on("SIGTERM", () => {});
      const alive = setInterval(() => {}, 1000);
      process.on("SIGUSR2", async () => {
        console.log(await evaluate("3 * 3"));
        await pool.close();
        clearInterval(alive);
      });
      await evaluate("1");
      console.log("ready");`;
    const child = processes.node(["--input-type=module", "-e", script(body)], { ownGroup: true });
    await child.waitForLine(/ready/);
    process.kill(-child.pid, "SIGINT");
    process.kill(-child.pid, "SIGTERM");
    child.kill("SIGUSR2");
    await child.exited;
    expect(child.lines).toEqual(["ready", "9"]);
  });

  test("shows its workers nothing of its environment", async () => {
    const body = `await evaluate("1"); console.log("ready"); setInterval(() => {}, 1000);`;
    const env = { SVC_DATABASE_PASSWORD: "environment-secret" };
    const child = processes.node(["--input-type=module", "-e", script(body)], { env });
    await child.waitForLine(/ready/);
    const [worker = 0] = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8")
      .trim()
      .split(" ")
      .map(Number);
    const environment = readFileSync(`/proc/${worker}/environ`, "utf8").split("\0");
    const names = environment.filter(Boolean).map((entry) => entry.split("=")[0]);
    expect(names.filter((name) => !name?.startsWith("NODE_CHANNEL"))).toEqual([]);
    expect(fileURLToPath(EVALUATOR_SCRIPT)).toBe(readFileSync(`/proc/${worker}/cmdline`, "utf8").split("\0").at(-2));
  });
});

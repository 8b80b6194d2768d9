import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "@jest/globals";
import { createExpressions } from "../../src/core/receipt/expressions.ts";
import { TransformError } from "../../src/model/errors.ts";
import type { Evaluation } from "../../src/ports/evaluator.ts";
import { EVALUATOR_SCRIPT, type TestEvaluator, testEvaluator } from "../support/evaluator.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { builtModule, useProcesses } from "../support/processes.ts";
import { type LogLine, recordingLog } from "../support/recorders.ts";

const processes = useProcesses();
failOnLeaks();

/** The time limit is generous: a machine that runs other tests beside these may not give a worker its turn for a while. */
const evaluation = (expression: string, input: unknown = {}, overrides: Partial<Evaluation> = {}): Evaluation => ({
  lane: "test",
  expression,
  input: JSON.stringify(input),
  bindings: {},
  timeoutMs: 10_000,
  maxDepth: 100,
  ...overrides,
});

const ENDLESS = "($f := function($x) { $f($x + 1) }; $f(1))";
/** Nothing in it asks for a limit: it compares each of 100,000 objects with each other. */
const UNINTERRUPTIBLE = evaluation(
  "$distinct($)",
  Array.from({ length: 100_000 }, (_, n) => ({ n })),
  { timeoutMs: 200 },
);
const QUICK = evaluation("n * 2", { n: 21 });

async function failure(result: Promise<string>): Promise<{ readonly code: string; readonly message: string }> {
  const outcome = await result.catch((error: unknown) => error);
  if (!(outcome instanceof TransformError)) throw new Error(`no TransformError but ${String(outcome).slice(0, 300)}`);
  return { code: outcome.code, message: outcome.message };
}

/**
 * The longest turn of the event loop until a promise settles, in ms of this process' own processor time: what an evaluation inside
 * this process would take, and what a busy machine does not.
 */
async function longestTurnDuring(promise: Promise<unknown>): Promise<number> {
  let longest = 0;
  let settled = false;
  const done = () => {
    settled = true;
  };
  promise.then(done, done);
  while (!settled) {
    const before = process.cpuUsage();
    await new Promise(setImmediate);
    const { user, system } = process.cpuUsage(before);
    longest = Math.max(longest, (user + system) / 1000);
  }
  return longest;
}

/** The process ids of this process's evaluation workers. */
function workerIds(): number[] {
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, "utf8").trim().split(" ").filter(Boolean);
  return children.map(Number).filter((pid) => readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("evaluatorWorker"));
}

/** Waits until a worker has used processor time on top of what its start took, 0.6 s or what `idle` says: it evaluates. */
function busyWorker(idle: ReadonlyMap<number, number> = new Map()): Promise<number> {
  return eventually(() => {
    const busy = workerIds().find((pid) => processorTicks(pid) > (idle.get(pid) ?? 60));
    if (busy === undefined) throw new Error("no worker is busy");
    return busy;
  });
}

/** Processor time that a process has used, in hundredths of a second. */
function processorTicks(pid: number): number {
  const [, fields = ""] = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ");
  return Number(fields.split(" ")[11]);
}

describe("an evaluator", () => {
  test("gives the result as JSON text", async () => {
    await using evaluator = testEvaluator();
    const bindings = { topic: "orders", headers: { "X-Tenant": "blue" }, eventType: null };
    const expression = '{"n": n, "topic": $topic, "tenant": $headers."X-Tenant", "type": $eventType, "none": $source}';
    expect(await evaluator.evaluate(evaluation(expression, { n: 1.5 }, { bindings }))).toBe(
      '{"n":1.5,"topic":"orders","tenant":"blue","type":null}',
    );
  });

  test("carries every text unharmed in both directions", async () => {
    await using evaluator = testEvaluator();
    const text = '\u0000\n\u2028\ud800 "\\é😀';
    expect(await evaluator.evaluate(evaluation("$", [text]))).toBe(JSON.stringify([text]));
    const large = "é".repeat(3_000_000);
    expect(await evaluator.evaluate(evaluation("$", large))).toBe(JSON.stringify(large));
  });

  test.each<readonly [string, string, Partial<Evaluation>, string]>([
    ["does not compile", "$sum(", {}, "invalid_expression"],
    ["has a regular expression that is not linear", "/(?=a)/", {}, "invalid_expression"],
    ["gets no JSON", "$", { input: "{" }, "invalid_input"],
    ["gives nothing", "a", {}, "no_result"],
    ["gives a function", "$sum", {}, "no_result"],
    ["fails", '$error("no total")', {}, "failed"],
    ["recurses too deeply", "($f := function($x) { 1 + $f($x) }; $f(1))", {}, "too_deep"],
    ["takes too long", ENDLESS, { timeoutMs: 20 }, "timeout"],
  ])("says what is wrong with an expression that %s", async (_, expression, overrides, code) => {
    await using evaluator = testEvaluator();
    expect(await failure(evaluator.evaluate(evaluation(expression, {}, overrides)))).toMatchObject({ code });
    expect(await evaluator.evaluate(QUICK)).toBe("42");
  });

  test("gives each of 1,000 concurrent evaluations its own result", async () => {
    await using evaluator = testEvaluator({ workers: 2 });
    const results = await Promise.all(
      Array.from({ length: 1000 }, async (_, n) => {
        const bindings = { messageId: `m${n}` };
        const expression = n % 3 === 0 ? "[n, $messageId]" : `[n, $messageId, ${n % 7}]`;
        return evaluator.evaluate(evaluation(expression, { n }, { bindings }));
      }),
    );
    expect(results).toEqual(
      Array.from({ length: 1000 }, (_, n) => (n % 3 === 0 ? `[${n},"m${n}"]` : `[${n},"m${n}",${n % 7}]`)),
    );
  });

  test("takes more than a worker holds at a time, small and large together", async () => {
    await using evaluator = testEvaluator();
    const sizes = Array.from({ length: 200 }, (_, n) => (n % 20 === 0 ? 2_000_000 : n));
    const lengths = sizes.map((size) => evaluator.evaluate(evaluation("$length($)", "x".repeat(size))));
    expect(await Promise.all(lengths)).toEqual(sizes.map(String));
  });

  test("runs evaluations beside each other in several workers", async () => {
    await using evaluator = testEvaluator({ workers: 2 });
    await evaluator.start();
    const long = evaluator.evaluate(evaluation(ENDLESS, {}, { timeoutMs: 2000 }));
    let isOver = false;
    const ended = failure(long).finally(() => {
      isOver = true;
    });
    await evaluator.evaluate(QUICK);
    expect(isOver).toBe(false);
    await ended;
  });

  test("has a short evaluation's result while a long one behind it runs", async () => {
    await using evaluator = testEvaluator();
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
    await using evaluator = testEvaluator();
    const warnings: Error[] = [];
    const onWarning = (warning: Error) => warnings.push(warning);
    process.on("warning", onWarning);
    expect(await evaluator.evaluate({ ...QUICK, timeoutMs: 2 ** 40 })).toBe("42");
    process.off("warning", onWarning);
    expect(warnings).toEqual([]);
  });

  test("refuses variables that are no JSON, and goes on", async () => {
    await using evaluator = testEvaluator();
    await evaluator.start();
    const circular: Record<string, unknown> = {};
    circular.self = circular;
    const refused = evaluator.evaluate(evaluation("1", {}, { bindings: circular }));
    expect(await failure(refused)).toMatchObject({ code: "failed" });
    expect(await evaluator.evaluate(QUICK)).toBe("42");
  });
});

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
  test.each(HOSTILE)(
    "leaves the event loop of its caller alone and ends: %s",
    async (_, hostile, codes) => {
      await using evaluator = testEvaluator();
      await evaluator.start();
      const before = evaluator.evaluate(QUICK);
      const ended = failure(evaluator.evaluate(hostile));
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
    await using evaluator = testEvaluator();
    const input = { text: `${"a".repeat(27)}!` };
    expect(await evaluator.evaluate(evaluation("$contains(text, /(a+)+$/)", input))).toBe("false");
  });

  test("among quick ones of the same expression is the only one that fails", async () => {
    await using evaluator = testEvaluator();
    const items = Array.from({ length: 3 }, (_, n) => ({ n }));
    for (let n = 0; n < 20; n++) await evaluator.evaluate({ ...UNINTERRUPTIBLE, input: JSON.stringify(items) });
    const results = Array.from({ length: 60 }, (_, n) =>
      n === 30 || n === 33
        ? failure(evaluator.evaluate(UNINTERRUPTIBLE)).then(({ code }) => code)
        : evaluator.evaluate({ ...UNINTERRUPTIBLE, input: JSON.stringify(items.slice(0, 1 + (n % 3))) }),
    );
    const expected = Array.from({ length: 60 }, (_, n) =>
      n === 30 || n === 33 ? "timeout" : JSON.stringify(items.slice(0, 1 + (n % 3))),
    );
    expect(await Promise.all(results)).toEqual(expected);
  }, 60_000);

  test("is told to the log without its payload", async () => {
    const { log, lines } = recordingLog();
    await using evaluator = testEvaluator({ log });
    expect(await failure(evaluator.evaluate(UNINTERRUPTIBLE))).toEqual({
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

describe("lanes", () => {
  const INNOCENT = { ...QUICK, lane: "innocent" };
  const HOSTILE_LANE = { ...UNINTERRUPTIBLE, lane: "hostile" };

  /** Evaluates for an innocent lane until it is told to stop, four at a time. */
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
    "of innocent senders go on while hostile payloads come %s",
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

  test("are all served after a hostile evaluation, its own too", async () => {
    await using evaluator = testEvaluator();
    const order: string[] = [];
    const evaluate = (lane: string, name: string, what: Evaluation) =>
      evaluator.evaluate({ ...what, lane }).then(
        () => order.push(name),
        () => order.push(`${name} failed`),
      );
    await Promise.all([
      evaluate("hostile", "hostile", UNINTERRUPTIBLE),
      evaluate("hostile", "behind the hostile", QUICK),
      evaluate("innocent", "innocent", QUICK),
    ]);
    expect(order.sort()).toEqual(["behind the hostile", "hostile failed", "innocent"]);
  });

  test("that exceed their time step by step are served apart too", async () => {
    await using evaluator = testEvaluator();
    await evaluator.start();
    const [shared = 0] = workerIds();
    const endless = evaluation(ENDLESS, {}, { lane: "endless", timeoutMs: 50 });
    expect(await failure(evaluator.evaluate(endless))).toMatchObject({ code: "timeout" });
    const ticks = processorTicks(shared);
    for (let n = 0; n < 5; n++) await failure(evaluator.evaluate({ ...endless, timeoutMs: 300 }));
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

  test("do not wait for a worker that starts behind one that was killed", async () => {
    // The other worker has 4 s to start, also on a busy machine.
    await using evaluator = testEvaluator({ graceMs: 8000 });
    await evaluator.start();
    let hostileEnded = false;
    const hostile = failure(evaluator.evaluate(HOSTILE_LANE)).finally(() => {
      hostileEnded = true;
    });
    // Posted to the same worker before it is known what the other one does.
    const innocent = Array.from({ length: 10 }, () => evaluator.evaluate(INNOCENT));
    await Promise.all(innocent);
    await evaluator.evaluate(INNOCENT);
    expect(hostileEnded).toBe(false);
    await evaluator.close();
    expect(await hostile).toMatchObject({ code: "closed" });
  }, 60_000);
});

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

  test("rejects when the file ends by itself", async () => {
    await using evaluator = testEvaluator({ script: new URL("file:///dev/null") });
    await expect(evaluator.start()).rejects.toThrow("ended with code 0 before it was ready");
  });
});

describe("the process of an evaluator", () => {
  const script = (body: string) => `
    import { EvaluatorPool } from ${JSON.stringify(builtModule("src/runtime/evaluation/pool.ts"))};
    const pool = new EvaluatorPool({ script: new URL(${JSON.stringify(EVALUATOR_SCRIPT.href)}), workers: 1, memoryLimitMb: 64 });
    const evaluate = (expression, timeoutMs = 10000) =>
      pool.evaluate({ expression, input: "{}", bindings: {}, timeoutMs, maxDepth: 100 });
    ${body}`;

  test("ends by itself while workers are idle, but not before every result is there", async () => {
    const child = processes.node(["--input-type=module", "-e", script(`evaluate("1 + 1").then(console.log);`)]);
    expect(await child.exited).toEqual({ code: 0, signal: null });
    expect(child.lines).toEqual(["2"]);
  });

  test("does not end before a result that takes a second worker", async () => {
    const body = `evaluate('$uppercase($pad("", 4e8))').catch(({ code }) => console.log(code));`;
    const child = processes.node(["--input-type=module", "-e", script(body)]);
    expect(await child.exited).toEqual({ code: 0, signal: null });
    expect(child.lines).toEqual(["too_large"]);
  });

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

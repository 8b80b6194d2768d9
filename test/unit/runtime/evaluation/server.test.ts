import { describe, expect, test } from "@jest/globals";
import { TransformError } from "../../../../src/model/errors.ts";
import type { EvaluationRequest, WorkerReport } from "../../../../src/runtime/evaluation/protocol.ts";
import { EvaluationServer, type EvaluationServerOptions } from "../../../../src/runtime/evaluation/server.ts";

function describeReport(report: WorkerReport): string {
  if (report.kind === "reply") return `reply ${"result" in report.reply ? report.reply.result : report.reply.code}`;
  return report.kind === "returned" ? `returned ${report.id}` : report.kind;
}

/** A server whose expressions are `name` or `name duration`; they take so long by its clock and give `name(input)`. */
function setup(overrides: Partial<EvaluationServerOptions> = {}) {
  let clock = 0;
  let lastId = 0;
  const log: string[] = [];
  const compiled: string[] = [];
  const server = new EvaluationServer({
    compile: (expression, limits) => {
      compiled.push(`${expression}/${limits.timeoutMs}/${limits.maxDepth}`);
      if (expression === "broken") throw new TransformError("invalid_expression", "it does not compile");
      const [name = "", duration = "0"] = expression.split(" ");
      return {
        async evaluate(input) {
          log.push(`run ${name}(${input})`);
          await Promise.resolve();
          clock += Number(duration);
          if (name === "fail") throw new TransformError("too_deep", `failed on ${input}`);
          if (name === "fault") throw new Error("a fault of ours");
          return `${name}(${input})`;
        },
      };
    },
    send: (report) => log.push(describeReport(report)),
    now: () => clock,
    ...overrides,
  });
  const request = (expression: string, input: string, timeoutMs = 100): EvaluationRequest => {
    lastId++;
    return { id: lastId, expression, input, bindings: {}, timeoutMs, maxDepth: 100 };
  };
  const run = (requests: readonly EvaluationRequest[]) => server.receive(requests);
  return { server, request, run, log, compiled };
}

describe("an evaluation server", () => {
  test("runs evaluations one after another, in the order in which they came", async () => {
    const { request, run, log } = setup();
    const first = run([request("a", "1"), request("b", "2")]);
    await Promise.all([first, run([request("a", "3")])]);
    expect(log.filter((line) => line.startsWith("run"))).toEqual(["run a(1)", "run b(2)", "run a(3)"]);
  });

  test("answers failures with their code, and a fault of its own as failed", async () => {
    const { request, run, log } = setup();
    await run([request("fail", "1"), request("fault", "2"), request("broken", "3"), request("a", "4")]);
    expect(log.filter((line) => line.startsWith("reply")).join(" ")).toBe(
      "reply too_deep reply failed reply invalid_expression reply a(4)",
    );
  });

  test("compiles an expression once for each pair of limits", async () => {
    const { request, run, compiled } = setup();
    await run([request("a", "1"), request("a", "2"), request("a", "3", 50), request("a", "4")]);
    expect(compiled).toEqual(["a/100/100", "a/50/100"]);
  });

  test("forgets the expressions that were used longest ago when they become too many", async () => {
    const { request, run, compiled } = setup();
    const long = (name: string) => `${name} 0 ${"x".repeat(100_000)}`;
    await run(["a", "b", "a", "c", "a", "b"].map((name) => request(long(name), "1")));
    expect(compiled.map(([name]) => name)).toEqual(["a", "b", "c", "b"]);
  });
});

describe("the reports of an evaluation server", () => {
  test("leave before the next evaluation begins, so that the first without a reply is running", async () => {
    const { request, run, log } = setup();
    await run([request("a", "1"), request("a", "2")]);
    expect(log).toEqual(["started", "run a(1)", "reply a(1)", "run a(2)", "reply a(2)"]);
  });

  test("tell how long an evaluation took", async () => {
    const times: number[] = [];
    const { request, run } = setup({
      send: (report) => {
        if (report.kind === "reply") times.push(report.reply.ms);
      },
    });
    await run([request("a", "1"), request("slow 5", "2"), request("fail 3", "3")]);
    expect(times).toEqual([0, 5, 3]);
  });

  test("give back what waits behind an evaluation that took long", async () => {
    const { request, run, log } = setup();
    const [slow, behind, last] = [request("slow 21", "1"), request("a", "2"), request("a", "3")];
    await run([slow, behind, last]);
    expect(log).toEqual(["started", "run slow(1)", "reply slow(1)", `returned ${last.id}`]);
    log.length = 0;
    await run([behind]);
    expect(log).toEqual(["started", "run a(2)", "reply a(2)"]);
  });
});

describe("a flood of evaluations that take longer than the pool expected", () => {
  const floodOf = (count: number, request: (expression: string, input: string) => EvaluationRequest) =>
    Array.from({ length: count }, (_, n) => request("slow 18", String(n)));

  test("is returned after a slice of time, whatever each of them takes", async () => {
    const { request, run, log } = setup();
    const flood = floodOf(64, request);
    await run(flood);
    const ran = log.filter((line) => line.startsWith("run"));
    expect(ran).toEqual(["run slow(0)", "run slow(1)"]);
    expect(log.at(-1)).toBe(`returned ${flood.at(-1)?.id}`);
  });

  test("is returned as one, also if it comes request by request", async () => {
    const { request, server, log } = setup();
    const flood = floodOf(64, request);
    // As the channel emits them: each behind what the last one has started.
    for (const each of flood) process.nextTick(() => void server.receive([each]));
    await new Promise(setImmediate);
    await server.receive([]);
    expect(log.filter((line) => line.startsWith("run"))).toHaveLength(2);
    expect(log.at(-1)).toBe(`returned ${flood.at(-1)?.id}`);
  });

  test("stays if the rest takes less than another slice", async () => {
    const { request, run, log } = setup();
    await run(Array.from({ length: 64 }, (_, n) => request("quick 0.4", String(n))));
    expect(log.filter((line) => line.startsWith("run"))).toHaveLength(64);
    expect(log.some((line) => line.startsWith("returned"))).toBe(false);
  });
});

import { describe, expect, test } from "@jest/globals";
import { TransformError } from "../../../../src/model/errors.ts";
import { type EvaluationRequest, MAX_HELD_REPLIES } from "../../../../src/runtime/evaluation/protocol.ts";
import { EvaluationServer, type EvaluationServerOptions } from "../../../../src/runtime/evaluation/server.ts";

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
    send: async (message) => {
      if (message.kind === "replies") {
        log.push(`reply ${message.replies.map((reply) => ("result" in reply ? reply.result : reply.code)).join(" ")}`);
      } else {
        log.push(message.kind);
      }
    },
    now: () => clock,
    ...overrides,
  });
  const request = (expression: string, input: string, timeoutMs = 100): EvaluationRequest => {
    lastId++;
    return { id: lastId, expression, input, bindings: {}, timeoutMs, maxDepth: 100 };
  };
  const run = (requests: readonly EvaluationRequest[], announced = false) => server.receive({ requests, announced });
  return { server, request, run, log, compiled };
}

describe("an evaluation server", () => {
  test("runs evaluations one after another, in the order in which they came", async () => {
    const { request, run, log } = setup();
    const first = run([request("a", "1"), request("b", "2")]);
    await Promise.all([first, run([request("a", "3")])]);
    expect(log.filter((line) => line.startsWith("run"))).toEqual(["run a(1)", "run b(2)", "run a(3)"]);
  });

  test("takes requests that come while replies are leaving", async () => {
    const late: (() => Promise<void>)[] = [];
    const replies: string[] = [];
    const { request, run } = setup({
      send: async (message) => {
        if (message.kind !== "replies") return;
        for (const reply of message.replies) replies.push("result" in reply ? reply.result : reply.code);
        void late.pop()?.();
        await new Promise(setImmediate);
      },
    });
    late.push(() => run([request("a", "2")]));
    await run([request("a", "1")]);
    expect(replies).toEqual(["a(1)", "a(2)"]);
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

describe("the replies of an evaluation server", () => {
  test("leave together when the evaluations are quick", async () => {
    const { request, run, log } = setup();
    await run([request("a", "0")]);
    log.length = 0;
    await run(Array.from({ length: MAX_HELD_REPLIES + 2 }, (_, n) => request("a", `${n + 1}`)));
    const together = log.filter((line) => line.startsWith("reply")).map((line) => line.split(" ").length - 1);
    expect(together).toEqual([MAX_HELD_REPLIES, 2]);
  });

  test.each([
    ["whose expression is new", "b", 100],
    ["whose expression took long the last time", "slow 50", 100],
    ["whose expression failed the last time", "fail", 100],
    ["with another time limit", "other", 200],
  ])("leave before an evaluation begins %s", async (_, expression, timeoutMs) => {
    const { request, run, log } = setup();
    await run([request("slow 50", "0"), request("fail", "0"), request("other", "0", 200), request("a", "0")]);
    log.length = 0;
    await run([request("a", "1"), request(expression, "2", timeoutMs)]);
    expect(log.slice(0, 3)).toEqual(["run a(1)", "reply a(1)", `run ${expression.split(" ")[0]}(2)`]);
  });

  test("leave before the next evaluation when they are long", async () => {
    const { request, run, log } = setup();
    await run([request("a", "0")]);
    log.length = 0;
    await run([request("a", "x".repeat(70_000)), request("a", "2")]);
    expect(log.map((line) => line.slice(0, 7))).toEqual(["run a(x", "reply a", "run a(2", "reply a"]);
  });

  test("follow the word that an announced evaluation begins", async () => {
    const { request, run, log } = setup();
    await run([request("a", "1")], true);
    expect(log).toEqual(["started", "run a(1)", "reply a(1)"]);
  });
});

import { describe, expect, test } from "@jest/globals";
import type { SourceStageContext } from "../../../../src/core/receipt/receive.ts";
import { compileEvaluation } from "../../../../src/core/transform/evaluation.ts";
import {
  createDeliveryStage,
  createSourceStage,
  type TransformSettings,
} from "../../../../src/core/transform/transform.ts";
import { PublishError, TransformError } from "../../../../src/model/errors.ts";
import type { ClaimToken, DeliverableRow, MessageId } from "../../../../src/model/rows.ts";
import type { Evaluation } from "../../../../src/ports/evaluator.ts";
import { recordingMetrics } from "../../../support/recorders.ts";

const OWNER = "destinations.billing";
const ID = "01980000-0000-7000-8000-000000000001" as MessageId;

const ROW: DeliverableRow = {
  id: ID,
  claimToken: "token" as ClaimToken,
  sequence: "1",
  topic: "orders.created",
  destination: null,
  isPinned: false,
  key: "k1",
  aggregateType: "order",
  payload: '{"stored":true}',
  headers: { "x-tenant": "blue" },
  attempt: 3,
  maxAttempts: 5,
  createdAt: new Date(Date.UTC(2024, 0, 31, 12, 30, 15, 7)),
  expiresInMs: null,
};

const CONTEXT: SourceStageContext = {
  messageId: ID,
  source: "orders",
  eventType: "created",
  idempotencyKey: "order-1",
  timestamp: "2024-01-31T12:30:15.007Z",
  headers: { "X-Tenant": "blue", "x-tenant": "red" },
};

const VARIABLES = ["messageId", "topic", "attempt", "timestamp", "source", "headers", "idempotencyKey", "eventType"];
/** Each variable by name; unbound ones are left out. */
const SHOW_VARIABLES = `{${VARIABLES.map((name) => `"${name}": $${name}`).join(", ")}}`;

const settings = (overrides: Partial<TransformSettings> = {}): TransformSettings => ({
  expression: "$",
  timeoutMs: 10_000,
  maxDepth: 100,
  onError: "Fail",
  ...overrides,
});

/** Evaluates in this process. */
const evaluator = {
  evaluate: async ({ expression, input, bindings, ...limits }: Evaluation) =>
    compileEvaluation(expression, limits).evaluate(input, bindings),
};

function recordingEvaluator() {
  const seen: Evaluation[] = [];
  const evaluate = async (evaluation: Evaluation) => {
    seen.push(evaluation);
    return "1";
  };
  return { seen, recorder: { evaluate } };
}

const failing = (error: Error) => ({ evaluate: () => Promise.reject(error) });
const closed = failing(new TransformError("closed", "the evaluator was closed"));
const busy = failing(new TransformError("busy", "too many evaluations wait"));
const notStarted = failing(new Error("no evaluation worker can be started"));

describe("the transform of a route or a destination", () => {
  test("binds what the row says, and nothing of the receipt", async () => {
    const stage = createDeliveryStage(settings({ expression: SHOW_VARIABLES }), evaluator, OWNER);
    expect(JSON.parse(await stage.run(ROW.payload, ROW))).toEqual({
      messageId: ID,
      topic: "orders.created",
      attempt: 3,
      timestamp: "2024-01-31T12:30:15.007Z",
    });
  });

  test("has the body as its input, which need not be the stored payload", async () => {
    const stage = createDeliveryStage(settings({ expression: '{"was": $}' }), evaluator, OWNER);
    expect(await stage.run('["by the route"]', ROW)).toBe('{"was":["by the route"]}');
  });

  test("has a lane of its own for each source, and is never refused", async () => {
    const { seen, recorder } = recordingEvaluator();
    const stage = createDeliveryStage(settings({ timeoutMs: 7, maxDepth: 9 }), recorder, OWNER);
    await stage.run("{}", ROW);
    expect(seen).toMatchObject([{ expression: "$", input: "{}", timeoutMs: 7, maxDepth: 9 }]);
    await stage.run("{}", { ...ROW, headers: { "x-source": "orders" } });
    expect(seen.map(({ lane }) => lane)).toEqual([OWNER, `${OWNER} from orders`]);
    expect(seen.every(({ refusable }) => refusable !== true)).toBe(true);
  });

  test.each(["Fail", "Skip", "Dead"] as const)("leaves a failure to onError %s", async (onError) => {
    const stage = createDeliveryStage(settings({ expression: "missing", onError }), evaluator, OWNER);
    expect(stage.onError).toBe(onError);
    await expect(stage.run("{}", ROW)).rejects.toMatchObject({ name: "TransformError", code: "no_result" });
  });

  test.each([
    ["was closed", closed],
    ["is busy", busy],
    ["cannot start", notStarted],
  ])("fails the delivery whatever onError says when the evaluator %s", async (_, evaluatorThatIsNotThere) => {
    const stage = createDeliveryStage(settings({ onError: "Dead" }), evaluatorThatIsNotThere, OWNER);
    const error = await stage.run("{}", ROW).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(PublishError);
    expect(error).toMatchObject({
      code: "transform_unavailable",
      message: expect.stringMatching(/^no transform could be run: /),
    });
  });
});

describe("the transform of a source", () => {
  const stageOf = (overrides: Partial<TransformSettings>, evaluates: typeof evaluator | typeof closed = evaluator) => {
    const { metrics, calls } = recordingMetrics();
    return { stage: createSourceStage(settings(overrides), evaluates, metrics), calls };
  };

  test("binds every variable, headers in their exact letter case", async () => {
    const { stage, calls } = stageOf({ expression: SHOW_VARIABLES });
    const outcome = await stage("{}", CONTEXT);
    expect(JSON.parse(outcome.kind === "replaced" ? outcome.payload : "")).toEqual({
      messageId: ID,
      topic: "created",
      attempt: 0,
      timestamp: "2024-01-31T12:30:15.007Z",
      source: "orders",
      headers: { "X-Tenant": "blue", "x-tenant": "red" },
      idempotencyKey: "order-1",
      eventType: "created",
    });
    expect(calls).toEqual([]);
  });

  test("has an empty topic and a null event type for a message without one", async () => {
    const { stage } = stageOf({ expression: "[$topic, $eventType]" });
    expect(await stage("{}", { ...CONTEXT, eventType: null })).toEqual({ kind: "replaced", payload: '["",null]' });
  });

  test("has the lane of its source, and may be refused if the caller says so", async () => {
    const { seen, recorder } = recordingEvaluator();
    const { stage } = stageOf({}, recorder);
    await stage("{}", CONTEXT, true);
    await stage("{}", CONTEXT);
    expect(seen).toMatchObject([
      { lane: "sources.orders", refusable: true },
      { lane: "sources.orders", refusable: false },
    ]);
  });

  test.each(["Fail", "Dead"] as const)(
    "rejects the message when it fails with onError %s, and counts it",
    async (onError) => {
      const { stage, calls } = stageOf({ expression: '$error("no total")', onError });
      expect(await stage("{}", CONTEXT)).toEqual({ kind: "rejected", reason: expect.stringMatching(/^no total/) });
      expect(calls).toEqual([`transformFailure(${onError})`]);
    },
  );

  test("leaves the body as it came when it fails with onError Skip, and counts it", async () => {
    const { stage, calls } = stageOf({ expression: "missing", onError: "Skip" });
    expect(await stage("{}", CONTEXT)).toEqual({ kind: "unchanged" });
    expect(calls).toEqual(["transformFailure(Skip)"]);
  });

  test.each(["Fail", "Skip", "Dead"] as const)(
    "with onError %s neither rejects a message nor lets it pass when the evaluator is not there: it may be sent again",
    async (onError) => {
      for (const evaluatorThatIsNotThere of [closed, busy, notStarted]) {
        const { stage, calls } = stageOf({ onError }, evaluatorThatIsNotThere);
        expect(await stage("{}", CONTEXT)).toEqual({ kind: "unavailable", reason: expect.any(String) });
        expect(calls).toEqual([]);
      }
    },
  );
});

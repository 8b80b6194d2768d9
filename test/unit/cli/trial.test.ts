import { describe, expect, test } from "@jest/globals";
import { TrialError, type TrialInput, trialOfConfigured, trialOfExpression } from "../../../src/cli/trial.ts";
import { compileEvaluation } from "../../../src/core/transform/evaluation.ts";
import { loadWith } from "../config/support.ts";

const NOW = new Date("2025-01-31T12:00:00.000Z");
const UUID = expect.stringMatching(/^[0-9a-f-]{36}$/);
const NOTHING: TrialInput = { payload: "null" };
const WITHOUT_OPTIONS = { messageId: UUID, topic: "test.topic", attempt: 0, timestamp: "2025-01-31T12:00:00.000Z" };

const config = loadWith(`
sources:
  shop:
    path: /shop
    idempotencyKeyPath: $.id
    eventTypePath: $.type
    auth: { key: k, headerName: X-Shop-Key }
    transform: { expression: e-shop, timeoutMs: 7, maxDepth: 8, onError: Skip }
  queue:
    connectionUrl: amqp://h
    queueName: q
    transform: { expression: e-queue }
  computed:
    path: /computed
    idempotencyKeyExpression: $headers."X-Tenant" & "-" & id
    eventTypeExpression: $number(type)
    topic: t
    transform: { expression: e-computed }
  plain: { path: /plain, idempotencyKeyPath: $.id, topic: t }
destinations:
  a.b: { baseUrl: http://h, transform: { expression: e-destination, timeoutMs: 5, onError: Dead } }
  bare: { baseUrl: http://h }
routes:
  - { topicPattern: a, destination: bare }
  - { topicPattern: b, destination: bare, transform: { expression: e-route, maxDepth: 9 } }
  - topicPattern: c
    destinations:
      - bare
      - { name: a.b, transform: { expression: e-entry }, when: { expression: e-when, timeoutMs: 3, onError: Dead } }
`);

const ofConfigured = (keyPath: string, input: Partial<TrialInput> = {}) =>
  trialOfConfigured(keyPath, config, { ...NOTHING, ...input }, NOW, {
    evaluator: {
      evaluate: ({ expression, input: text, bindings, maxDepth }) =>
        compileEvaluation(expression, { timeoutMs: 60_000, maxDepth }).evaluate(
          text,
          JSON.parse(JSON.stringify(bindings)),
        ),
    },
    onFailure: (key, code) => failures.push(`${key} ${code}`),
  });

const failures: string[] = [];

describe("the trial of an expression from the command line", () => {
  test("has the defaults of a transform, and no variable without a value", () => {
    expect(trialOfExpression("e", NOTHING, NOW)).toEqual({
      evaluation: {
        lane: "trial",
        expression: "e",
        input: "null",
        bindings: WITHOUT_OPTIONS,
        timeoutMs: 100,
        maxDepth: 100,
      },
      onError: null,
    });
  });

  test("binds what is given", () => {
    const input = {
      topic: "t",
      source: "s",
      header: [
        ["X-A", "1"],
        ["x-a", "2"],
      ] as const,
      attempt: 3,
      timeoutMs: 9,
      payload: "[]",
    };
    const { evaluation } = trialOfExpression("e", { ...NOTHING, ...input }, NOW);
    expect(evaluation).toMatchObject({ input: "[]", timeoutMs: 9 });
    expect(evaluation.bindings).toEqual({
      ...WITHOUT_OPTIONS,
      topic: "t",
      source: "s",
      headers: { "X-A": "1, 2" },
      attempt: 3,
    });
  });
});

describe("the trial of a configured transform", () => {
  test.each([
    ["routes[1]", { expression: "e-route", timeoutMs: 100, maxDepth: 9 }, "Fail"],
    ["routes[1].transform", { expression: "e-route" }, "Fail"],
    ["routes[2].destinations[1]", { expression: "e-entry" }, "Fail"],
    ["destinations.a.b", { expression: "e-destination", timeoutMs: 5, maxDepth: 100 }, "Dead"],
  ])("%s has its limits, and the variables of its stage", async (keyPath, limits, onError) => {
    const trial = await ofConfigured(keyPath, { topic: "t", attempt: 2 });
    expect(trial).toMatchObject({ evaluation: limits, onError });
    expect(trial.evaluation.bindings).toEqual({ ...WITHOUT_OPTIONS, topic: "t", attempt: 2 });
  });

  test("of a condition is true or false, and sees the key and the headers of the row", async () => {
    const header = [["X-Tenant", "blue"]] as const;
    const trial = await ofConfigured("routes[2].destinations[1].when", { topic: "t", header });
    expect(trial).toMatchObject({ onError: "Dead", isCondition: true });
    expect(trial.evaluation).toMatchObject({ expression: "(e-when) ? true : false", timeoutMs: 3, maxDepth: 100 });
    expect(trial.evaluation.bindings).toEqual({
      ...WITHOUT_OPTIONS,
      topic: "t",
      key: null,
      headers: { "X-Tenant": "blue" },
    });
  });

  test("of an HTTP source sees the attributes of the payload and the headers that would be stored", async () => {
    const header = [
      ["X-Tenant", "blue"],
      ["Authorization", "Bearer x"],
      ["x-shop-key", "k"],
      ["X-Correlation-Id", "c"],
    ] as const;
    const { evaluation, onError } = await ofConfigured("sources.shop", {
      payload: '{"id":7,"type":"created"}',
      header,
    });
    expect(evaluation).toMatchObject({ expression: "e-shop", timeoutMs: 7, maxDepth: 8 });
    expect(evaluation.bindings).toEqual({
      ...WITHOUT_OPTIONS,
      topic: "created",
      source: "shop",
      headers: { "X-Tenant": "blue" },
      idempotencyKey: "7",
      eventType: "created",
    });
    expect(onError).toBe("Skip");
  });

  test("of a broker source takes the event type from its header; without one the topic is empty", async () => {
    const header = [["X-Event-Type", "paid"]] as const;
    expect((await ofConfigured("sources.queue", { payload: '{"id":1}', header })).evaluation.bindings).toMatchObject({
      topic: "paid",
      eventType: "paid",
      headers: { "X-Event-Type": "paid" },
    });
    expect((await ofConfigured("sources.queue", { payload: '{"id":1}' })).evaluation.bindings).toMatchObject({
      topic: "",
      eventType: null,
    });
  });

  test("of a source computes its attributes as at receipt, and tells of an expression that failed", async () => {
    const header = [["X-Tenant", "blue"]] as const;
    const { evaluation } = await ofConfigured("sources.computed", { payload: '{"id":7,"type":"x"}', header });
    expect(evaluation.bindings).toMatchObject({ idempotencyKey: "blue-7", eventType: null, topic: "" });
    expect(failures).toEqual(["eventTypeExpression failed"]);
  });

  test("of a source is refused for a payload that would not come to it", async () => {
    await expect(ofConfigured("sources.shop", { payload: '{"type":"created"}' })).rejects.toThrow(
      "sources.shop refuses the payload",
    );
    await expect(ofConfigured("sources.shop", { payload: "{" })).rejects.toThrow(
      "sources.shop refuses the payload before its transform: it is not JSON",
    );
  });

  test.each<[string, Partial<TrialInput>, RegExp]>([
    [
      "destinations.nobody",
      {},
      /--of: there is no destinations.nobody; transforms have sources.shop, sources.queue, sources.computed, /,
    ],
    ["destinations.bare", {}, /--of: destinations.bare has no transform; /],
    ["routes[0]", {}, /--of: routes\[0\] has no transform; /],
    ["routes[9]", {}, /--of: there is no routes\[9\]/],
    ["routes[1]", { source: "s" }, /--source: \$source is not bound in routes\[1\]/],
    ["destinations.a.b", { header: [["X-A", "1"]] }, /--header: \$headers is not bound/],
    ["sources.shop", { topic: "t" }, /--topic: sources.shop takes it from the event type/],
    ["sources.shop", { source: "s" }, /--source: /],
    ["sources.shop", { attempt: 1 }, /--attempt: /],
  ])("refuses %s with %j", async (keyPath, input, message) => {
    const attempt = ofConfigured(keyPath, { payload: '{"id":1}', ...input });
    await expect(attempt).rejects.toThrow(TrialError);
    await expect(attempt).rejects.toThrow(message);
  });
});

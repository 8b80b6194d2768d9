import { describe, expect, test } from "@jest/globals";
import { BROKER_SOURCE_KINDS } from "../../../../src/adapters/kinds.ts";
import { brokerPlan, httpPlan } from "../../../../src/core/receipt/attributes.ts";
import {
  createExpressions,
  type ExpressionSettings,
  warnOfFailures,
} from "../../../../src/core/receipt/expressions.ts";
import { createIntake } from "../../../../src/core/receipt/intake.ts";
import { createReceiver } from "../../../../src/core/receipt/receive.ts";
import { compileEvaluation } from "../../../../src/core/transform/evaluation.ts";
import { TransformError } from "../../../../src/model/errors.ts";
import type { NewInboxRow } from "../../../../src/model/rows.ts";
import type { Evaluation } from "../../../../src/ports/evaluator.ts";
import { ManualClock, recordingJournal, recordingLog, recordingMetrics } from "../../../support/recorders.ts";

/** Evaluates in this process, which may be slow: without the limit of time. */
const evaluator = {
  evaluate: ({ expression, input, bindings, maxDepth }: Evaluation) =>
    compileEvaluation(expression, { timeoutMs: 60_000, maxDepth }).evaluate(input, bindings),
};
/** With the limit of time. */
const strict = {
  evaluate: ({ expression, input, bindings, ...limits }: Evaluation) =>
    compileEvaluation(expression, limits).evaluate(input, bindings),
};
const failing = (error: Error) => ({ evaluate: () => Promise.reject(error) });

function setup(settings: ExpressionSettings, evaluates: Pick<typeof evaluator, "evaluate"> = evaluator) {
  const clock = new ManualClock();
  const { log, lines } = recordingLog();
  const seen: Evaluation[] = [];
  const recording = {
    evaluate: (evaluation: Evaluation) => {
      seen.push(evaluation);
      return evaluates.evaluate(evaluation);
    },
  };
  const onFailure = warnOfFailures("orders", { log, clock });
  const expressions = createExpressions({
    source: "orders",
    settings,
    evaluator: recording,
    onFailure,
  });
  if (expressions === undefined) throw new Error("the source has no expression");
  const compute = (
    text: string,
    extra: { readonly headers?: Record<string, string>; readonly position?: number; readonly refusable?: boolean } = {},
  ) => expressions({ text, headers: {}, ...extra });
  return { compute, expressions, clock, lines, seen };
}

const computed = (values: object) => ({ kind: "computed", values });

describe("an expression for an attribute", () => {
  test("sees the body, the headers, the source and the position, in the limits and the lane of the source", async () => {
    const idempotencyKeyExpression = '$join([$source, id, $headers."X-Tenant", $string($position)], "/")';
    const { compute, seen } = setup({ idempotencyKeyExpression });
    const headers = { "X-Tenant": "blue" };
    expect(await compute('{"id":"a"}', { headers })).toEqual(computed({ idempotencyKey: "orders/a/blue" }));
    expect(await compute('{"id":"a"}', { headers, position: 0, refusable: true })).toEqual(
      computed({ idempotencyKey: "orders/a/blue/0" }),
    );
    expect(seen[0]).toMatchObject({ lane: "sources.orders", timeoutMs: 100, maxDepth: 100, refusable: false });
    expect(seen[1]).toMatchObject({ refusable: true });
  });

  test.each([
    ["a text", '"a"', "a"],
    ["blanks", '" "', " "],
    ["a number", "1.50", "1.5"],
    ["zero", "0", "0"],
    ["a boolean", "false", "false"],
  ])("gives the value of %s", async (_, value, text) => {
    const { compute, lines } = setup({ eventTypeExpression: "value" });
    expect(await compute(`{"value":${value}}`)).toEqual(computed({ eventType: text }));
    expect(lines).toEqual([]);
  });

  test.each([
    ["an empty text", '{"value":""}'],
    ["null", '{"value":null}'],
    ["an object", '{"value":{"a":1}}'],
    ["an array", '{"value":[1,2]}'],
    ["nothing", "{}"],
  ])("gives no value if it finds %s, without a warning", async (_, text) => {
    const { compute, lines } = setup({ aggregateIdExpression: "value" });
    expect(await compute(text)).toEqual(computed({}));
    expect(lines).toEqual([]);
  });

  test("that fails gives no value, and does not keep the others from theirs", async () => {
    const { compute } = setup({
      idempotencyKeyExpression: '$error("no")',
      eventTypeExpression: "type",
      aggregateIdExpression: '"c-" & customer',
    });
    expect(await compute('{"type":"paid","customer":7}')).toEqual(computed({ eventType: "paid", aggregateId: "c-7" }));
  });

  test("that fails is warned of once an hour for each key, without a text of the message", async () => {
    const { compute, clock, lines } = setup({
      idempotencyKeyExpression: '$error("no " & secret)',
      eventTypeExpression: "$number(secret)",
    });
    const text = '{"secret":"hunter2"}';
    for (let n = 0; n < 3; n++) await compute(text, { headers: { "x-secret": "hunter2" } });
    expect(lines.map(({ level, fields }) => `${level} ${fields.source} ${fields.key} ${fields.code}`).sort()).toEqual([
      "warn orders eventTypeExpression failed",
      "warn orders idempotencyKeyExpression failed",
    ]);
    expect(JSON.stringify(lines)).not.toContain("hunter2");
    clock.advance(3_599_999);
    await compute(text);
    expect(lines).toHaveLength(2);
    clock.advance(1);
    await compute(text);
    expect(lines).toHaveLength(4);
  });

  test.each([
    ["takes too long", "($f := function($x) { $f($x) }; $f(1))", "timeout", strict],
    ["recurses too deeply", "($f := function($x) { 1 + $f($x) }; $f(1))", "too_deep", evaluator],
  ])("that %s has failed", async (_, idempotencyKeyExpression, code, evaluates) => {
    const { compute, lines } = setup({ idempotencyKeyExpression }, evaluates);
    expect(await compute("{}")).toMatchObject(computed({}));
    expect(lines.map(({ fields }) => fields)).toEqual([{ source: "orders", key: "idempotencyKeyExpression", code }]);
  });

  test.each([
    ["is busy", new TransformError("busy", "too many wait")],
    ["was closed", new TransformError("closed", "closed")],
    ["cannot start", new Error("no worker")],
  ])("is no reason for another key when the evaluator %s", async (_, error) => {
    const { compute, lines } = setup({ idempotencyKeyExpression: "id", eventTypeExpression: "type" }, failing(error));
    expect(await compute('{"id":1}')).toEqual({ kind: "unavailable", reason: expect.stringContaining(error.message) });
    expect(lines).toEqual([]);
  });

  test("is not evaluated if its header has a value", async () => {
    const { compute, seen } = setup({
      idempotencyKeyExpression: "id",
      idempotencyKeyHeader: "X-Key",
      eventTypeExpression: "type",
      eventTypeHeader: "X-Type",
    });
    const headers = { "x-key": "k", "X-TYPE": "" };
    expect(await compute('{"id":1,"type":"t"}', { headers })).toEqual(computed({ eventType: "t" }));
    expect(seen.map(({ expression }) => expression)).toEqual(["type"]);
    // The header of a request is not the key of each of its messages.
    expect(await compute('{"id":1}', { headers, position: 1 })).toEqual(computed({ idempotencyKey: "1" }));
  });
});

const BROKER_SETTINGS = {
  idempotencyKeyPath: "$.key",
  attributeHeaders: { idempotencyKey: "x-idempotency-key", eventType: "x-event-type", aggregateId: "x-aggregate-id" },
};

describe("a source with an expression for its key", () => {
  function receiverOf(settings: Parameters<typeof httpPlan>[0] & ExpressionSettings, evaluates = evaluator) {
    const { expressions, lines } = setup(settings, evaluates);
    const rows: NewInboxRow[] = [];
    const { journal, noted } = recordingJournal();
    const receiver = createReceiver({
      source: "orders",
      settings: { consumption: "push", filter: { require: [], exclude: [{ header: "x-noise", exists: true }] } },
      attributes: httpPlan(settings),
      expressions,
      batcher: {
        add: async (row) => {
          rows.push(row);
          return { kind: "stored" };
        },
        addRequest: async (all) => {
          rows.push(...all);
          return all.map(() => ({ kind: "stored" }));
        },
      },
      journal,
      clock: new ManualClock(),
      metrics: recordingMetrics().metrics,
      log: recordingLog().log,
    });
    const messageOf = (body: string, headers = {}) => ({ body: Buffer.from(body), headers, correlationId: null });
    const accept = (body: string, headers = {}) => receiver.accept(messageOf(body, headers));
    return { receiver, rows, noted, lines, accept, messageOf };
  }

  const settings = {
    idempotencyKeyHeader: "X-Key",
    idempotencyKeyExpression: '$exists(id) ? "e-" & id : nothing',
    idempotencyKeyPath: "$.fallback",
    eventTypePath: "$.type",
    eventTypeExpression: "$lowercase(kind)",
    aggregateIdExpression: "customer",
  };

  test("reads the header, then the expression, then the path", async () => {
    const { accept, rows } = receiverOf(settings);
    await accept('{"id":1,"fallback":"f"}', { "X-Key": "h" });
    await accept('{"id":1,"fallback":"f","kind":"PAID","type":"t","customer":"c"}');
    await accept('{"fallback":"f","type":"t"}');
    expect(rows).toMatchObject([
      { idempotencyKey: "h", eventType: null, aggregateId: null },
      { idempotencyKey: "e-1", eventType: "paid", aggregateId: "c" },
      { idempotencyKey: "f", eventType: "t", aggregateId: null },
    ]);
  });

  test("needs no other place, and names the expression if it gave nothing", async () => {
    const { accept, rows } = receiverOf({ idempotencyKeyExpression: "id" });
    await accept('{"id":1}');
    expect(rows).toMatchObject([{ idempotencyKey: "1" }]);
    expect(await accept("{}")).toMatchObject({
      rejection: "extraction_failed",
      reason: "no idempotency key by idempotencyKeyExpression: a non-empty string, a number or a boolean is expected",
    });
  });

  test("stores no message under another key while no expression can run", async () => {
    const { accept, rows, receiver, messageOf } = receiverOf(settings, failing(new TransformError("busy", "too many")));
    expect(await accept('{"id":1,"fallback":"f"}')).toEqual({ kind: "busy", reason: "busy too many" });
    const messages = [0, 1].map((position) => ({ ...messageOf('{"fallback":"f"}'), position }));
    expect(await receiver.acceptRequest(messages, false)).toMatchObject([{ kind: "busy" }, { kind: "busy" }]);
    expect(rows).toEqual([]);
  });

  describe("that takes too long", () => {
    /** As a slow expression does, for the messages that say so. */
    const slow = {
      evaluate: (evaluation: Evaluation) =>
        evaluation.input.includes('"slow"')
          ? Promise.reject(new TransformError("timeout", "it took longer than 100 ms"))
          : evaluator.evaluate(evaluation),
    };
    const only = { idempotencyKeyExpression: "$exists(id) ? id : nothing", eventTypeExpression: "type" };
    const busy = { kind: "busy", reason: expect.stringContaining("no idempotency key by idempotencyKeyExpression") };

    test("leaves a message without a key to its sender, who may send it again", async () => {
      const { accept, rows } = receiverOf(only, slow);
      expect(await accept('{"id":"slow"}')).toEqual(busy);
      expect(await accept("{}")).toMatchObject({ kind: "rejected", rejection: "extraction_failed" });
      expect(rows).toEqual([]);
    });

    test("holds up no other message of its request", async () => {
      const { receiver, rows, messageOf } = receiverOf(only, slow);
      const request = ['{"id":1}', '{"id":"slow"}', "{}"].map((body, position) => ({ ...messageOf(body), position }));
      expect(await receiver.acceptRequest(request, false)).toMatchObject([
        { kind: "stored" },
        busy,
        { kind: "rejected" },
      ]);
      expect(rows).toMatchObject([{ idempotencyKey: "1" }]);
      const both = request.slice(0, 2);
      expect(await receiver.acceptRequest(both, true)).toMatchObject([{ kind: "withheld" }, busy]);
      expect(rows).toHaveLength(1);
    });

    test("stores a message of a broker under its next place, in the end the digest of its body", async () => {
      const { expressions } = setup(only, slow);
      const rows: NewInboxRow[] = [];
      const intake = createIntake({
        source: "orders",
        settings: { consumption: "push" },
        attributes: brokerPlan({ ...BROKER_SETTINGS, ...only }, BROKER_SOURCE_KINDS.kafka.attributes),
        expressions,
        insert: async (all) => {
          rows.push(...all);
          return all.map(() => ({ kind: "stored" }));
        },
        wait: () => Promise.reject(new Error("it waits")),
        redact: (text) => text,
        clock: new ManualClock(),
        random: () => 0,
        metrics: recordingMetrics().metrics,
        log: recordingLog().log,
      });
      const messages = ['{"id":"slow"}', '{"id":2}'].map((body) => ({ body: Buffer.from(body), headers: {} }));
      await intake.take(messages, new AbortController().signal);
      expect(rows).toMatchObject([
        { idempotencyKey: expect.stringMatching(/^sha256:/), state: "pending" },
        { idempotencyKey: "2", state: "pending" },
      ]);
    });
  });

  test("computes the key of each message of a request", async () => {
    const idempotencyKeyExpression = '$exists(id) ? id : $headers."X-Request" & "-" & $position';
    const { receiver, rows, messageOf } = receiverOf({ idempotencyKeyExpression, idempotencyKeyHeader: "X-Key" });
    const headers = { "X-Request": "r", "X-Key": "h" };
    const bodies = ['{"id":"own"}', "{}", "{}"];
    await receiver.acceptRequest(
      bodies.map((body, position) => ({ ...messageOf(body, headers), position })),
      true,
    );
    expect(rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual(["own", "r-1", "r-2"]);
  });

  test("does not say what key a message would have that a filter dropped, unless its header has it", () => {
    const { receiver, noted } = receiverOf(settings);
    const body = Buffer.from('{"id":1,"fallback":"f"}');
    receiver.drop(() => ({ body, headers: { "x-noise": "1" }, correlationId: undefined }));
    receiver.drop(() => ({ body, headers: { "x-noise": "1", "x-key": "h" }, correlationId: undefined }));
    expect(noted).toMatchObject([{ idempotencyKey: null }, { idempotencyKey: "h" }]);
  });
});

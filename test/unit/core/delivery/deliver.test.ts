import { describe, expect, test } from "@jest/globals";
import { compileAddress, parseRoutingKeyTemplate } from "../../../../src/core/delivery/template.ts";
import { ClaimLostError, PublishError, StoppingError } from "../../../../src/model/errors.ts";
import { EXPIRED } from "../../../../src/model/rows.ts";
import { CLAIM, CREATED, never, row, setup } from "./deliverSetup.ts";

test("a row that has expired is dead without an attempt, and says nothing about its receiver", async () => {
  const { delivery, published, calls } = setup({ history: "failures" });
  const { outcome, report } = await delivery.deliver(row({ expiresInMs: 0, attempt: 2 }), never);
  expect(outcome).toMatchObject({
    ...CLAIM,
    kind: "dead",
    attempted: false,
    reason: EXPIRED,
    record: { attempt: null },
  });
  expect(report).toEqual({ receiver: "unasked", reason: EXPIRED });
  expect(published).toEqual([]);
  expect(calls).toEqual(["outboxMessages(dead, 1)", "outboxDestinationMessage(shop, dead)"]);
});

describe("a delivery that succeeds", () => {
  test("publishes the stored payload, with merged headers, and settles the row as sent", async () => {
    const { delivery, published } = setup();
    expect((await delivery.deliver(row(), never)).outcome).toEqual({ ...CLAIM, kind: "sent" });
    expect(published).toEqual([
      {
        id: CLAIM.id,
        deliveryId: CLAIM.id,
        topic: "orders.created",
        key: "k1",
        body: '{ "id": 1.0 }',
        headers: {
          "content-type": "application/json",
          "x-fixed": "1",
          "x-tenant": "row",
          "x-message-id": CLAIM.id,
        },
        address: null,
        routingKey: null,
      },
    ]);
  });

  test("counts, measures publish and latency in seconds, and logs a line without payload and headers", async () => {
    const { delivery, calls, lines } = setup();
    await delivery.deliver(row({ attempt: 2 }), never);
    expect(calls).toEqual([
      "outboxPublishDuration(http, 0.5)",
      "outboxMessages(sent, 1)",
      "outboxDestinationMessage(shop, sent)",
      "deliveryLatency(2.5)",
      "messageDelivery(shop, 2.5, )",
    ]);
    expect(lines).toEqual([
      {
        level: "info",
        message: "delivery attempted",
        fields: {
          id: CLAIM.id,
          topic: "orders.created",
          key: "k1",
          destination: "shop",
          destinationKind: "http",
          attempt: 2,
          maxAttempts: 5,
          outcome: "sent",
          durationMs: 500,
        },
      },
    ]);
  });

  test("never measures a negative latency when the database's clock is ahead", async () => {
    const { delivery, calls } = setup();
    await delivery.deliver(row({ createdAt: new Date(CREATED + 60_000) }), never);
    expect(calls).toContain("deliveryLatency(0)");
  });

  test("renders address and routing key from the stored row, also when a transform changes the body", async () => {
    const { delivery, published } = setup({
      route: {
        routingKey: parseRoutingKeyTemplate("{{ payload.id }}.{{ payload.none }}"),
        routingKeyMissing: "x",
        transform: { onError: "Fail", run: async () => '{"id":"changed"}' },
      },
      target: {
        address: compileAddress({ name: "exchange", template: "ex.{{ payload.id }}", from: undefined }),
        routingKey: { template: parseRoutingKeyTemplate("{{ topic }}"), emptyMeansNone: false },
      },
    });
    await delivery.deliver(row(), never);
    expect(published[0]).toMatchObject({ body: '{"id":"changed"}', address: "ex.1.0", routingKey: "1.0.x" });
  });
});

describe("what only an owner's table lets in", () => {
  test.each([
    ["topic", { topic: null }],
    ["payload", { payload: null }],
  ])(
    "a NULL %s makes the row dead with a reason that says so, without an attempt or a publish",
    async (name, nulls) => {
      const { delivery, published, calls } = setup();
      expect((await delivery.deliver(row(nulls), never)).outcome).toEqual({
        ...CLAIM,
        kind: "dead",
        attempted: false,
        reason: `the column of the ${name} is NULL: there is nothing to deliver`,
      });
      expect(published).toEqual([]);
      expect(calls).toContain("outboxMessages(dead, 1)");
    },
  );

  test("a payload that no process could hold makes the row dead with a reason that says so", async () => {
    const { delivery, published } = setup();
    expect((await delivery.deliver(row({ payload: null, tooLarge: "payload" }), never)).outcome).toEqual({
      ...CLAIM,
      kind: "dead",
      attempted: false,
      reason: "the payload has more than 64 MiB as text, the most that is delivered: send a reference to larger data",
    });
    expect(published).toEqual([]);
  });

  test("a row without a time of creation is delivered, and its latency is not measured", async () => {
    const { delivery, calls } = setup();
    expect((await delivery.deliver(row({ createdAt: null }), never)).outcome).toEqual({ ...CLAIM, kind: "sent" });
    expect(calls.filter((call) => call.startsWith("deliveryLatency"))).toEqual([]);
  });

  test("a row without a topic has no destination", () => {
    expect(setup().delivery.destinationOf(row({ topic: null }))).toBeUndefined();
  });
});

describe("an interruption", () => {
  test.each([new StoppingError(), new ClaimLostError()])(
    "by %s during the publish gives the row back",
    async (reason) => {
      const controller = new AbortController();
      const { delivery, calls, lines } = setup({
        publish: (_message, signal) =>
          new Promise((_, reject) => {
            signal.addEventListener("abort", () => reject(signal.reason));
            controller.abort(reason);
          }),
      });
      expect(await delivery.deliver(row(), controller.signal)).toEqual({
        outcome: { ...CLAIM, kind: "release" },
        report: { receiver: "unknown", reason: reason.message, isInterrupted: true },
      });
      expect(calls.filter((call) => call.startsWith("outboxMessages"))).toEqual([]);
      expect(lines).toMatchObject([{ level: "info", fields: { outcome: "release", reason: reason.message } }]);
    },
  );

  test("before the publish publishes nothing", async () => {
    const { delivery, published } = setup();
    expect(await delivery.deliver(row(), AbortSignal.abort(new StoppingError()))).toEqual({
      outcome: { ...CLAIM, kind: "release" },
      report: { receiver: "unasked" },
    });
    expect(published).toEqual([]);
  });

  test("during a transform publishes nothing", async () => {
    const controller = new AbortController();
    const { delivery, published } = setup({
      route: {
        transform: {
          onError: "Fail",
          run: async (body) => {
            controller.abort(new StoppingError());
            return body;
          },
        },
      },
    });
    expect((await delivery.deliver(row(), controller.signal)).outcome).toEqual({ ...CLAIM, kind: "release" });
    expect(published).toEqual([]);
  });

  test("that comes just after the receiver refused leaves a failed attempt", async () => {
    const controller = new AbortController();
    const { delivery } = setup({
      publish: async () => {
        controller.abort(new StoppingError());
        throw new PublishError("status_4xx", "refused");
      },
    });
    expect((await delivery.deliver(row(), controller.signal)).outcome).toMatchObject({
      kind: "retry",
      reason: "refused",
    });
  });

  test("for another reason is a failed attempt", async () => {
    const { delivery } = setup();
    const { outcome } = await delivery.deliver(row(), AbortSignal.abort(new Error("out of time")));
    expect(outcome).toMatchObject({ kind: "retry", reason: "out of time" });
  });
});

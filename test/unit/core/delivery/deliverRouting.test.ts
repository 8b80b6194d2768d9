import { describe, expect, test } from "@jest/globals";
import type { DeliveryTarget, TransformStage } from "../../../../src/core/delivery/deliver.ts";
import { createRetryPolicy } from "../../../../src/core/delivery/failure.ts";
import type { OutboundMessage } from "../../../../src/ports/destination.ts";
import { CLAIM, never, ROUTE, row, setup } from "./deliverSetup.ts";

describe("a topic that no route matches", () => {
  test("makes the row dead with a reason that names it, without an attempt", async () => {
    const { delivery, published, calls, lines } = setup();
    expect((await delivery.deliver(row({ topic: "invoices" }), never)).outcome).toEqual({
      ...CLAIM,
      kind: "dead",
      attempted: false,
      reason: 'no route matches the topic "invoices"',
    });
    expect(published).toEqual([]);
    expect(calls).toEqual(["outboxMessages(dead, 1)"]);
    expect(lines).toHaveLength(1);
  });

  test("has no destination", () => {
    const { delivery } = setup();
    expect(delivery.destinationOf(row({ topic: "invoices" }))).toBeUndefined();
    expect(delivery.destinationOf(row({ topic: "orders.paid" }))).toBe("shop");
  });
});

describe("a row that was replayed to another destination", () => {
  const elsewhere: OutboundMessage[] = [];
  const stage = (mark: string): TransformStage => ({ onError: "Fail", run: async (body) => `${mark}${body}` });
  const standby: DeliveryTarget = {
    kind: "http",
    destination: { publish: async (message) => void elsewhere.push(message), close: async () => {} },
    headers: { "x-for": "standby" },
    address: null,
    routingKey: null,
    transform: stage("target "),
    retryPolicy: createRetryPolicy(undefined, 1000),
    maxAttempts: undefined,
  };
  const more = {
    targets: { standby },
    routes: [{ ...ROUTE, topicPattern: "audit.*", destination: "standby", transform: stage("route ") }],
  };

  test("goes there, with that one's headers and transform, and without the transform of its topic's route", async () => {
    elsewhere.length = 0;
    const { delivery, published, calls } = setup({ route: { transform: stage("shop ") }, ...more });
    const redirected = row({ destination: "standby", isPinned: true });
    expect(delivery.destinationOf(redirected)).toBe("standby");
    expect((await delivery.deliver(redirected, never)).outcome).toEqual({ ...CLAIM, kind: "sent" });
    expect(published).toEqual([]);
    expect(elsewhere).toMatchObject([{ topic: "orders.created", body: 'target { "id": 1.0 }' }]);
    expect(elsewhere[0]?.headers).toMatchObject({ "x-for": "standby" });
    expect(calls).toContain("outboxDestinationMessage(standby, sent)");
  });

  test("goes by the route of its topic to that destination if there is one", async () => {
    elsewhere.length = 0;
    const { delivery } = setup(more);
    await delivery.deliver(row({ topic: "audit.log", destination: "standby", isPinned: true }), never);
    expect(elsewhere).toMatchObject([{ body: 'target route { "id": 1.0 }' }]);
  });

  test("goes by its label, and by the routes if that is unknown here", async () => {
    elsewhere.length = 0;
    const { delivery, published } = setup(more);
    await delivery.deliver(row({ destination: "standby" }), never);
    expect(elsewhere).toMatchObject([{ topic: "orders.created" }]);
    expect(published).toEqual([]);
    await delivery.deliver(row({ destination: "gone" }), never);
    expect(published).toMatchObject([{ topic: "orders.created" }]);
    const { outcome } = await delivery.deliver(row({ topic: "bills", destination: "gone" }), never);
    expect(outcome).toMatchObject({ kind: "dead", reason: 'no route matches the topic "bills"' });
  });

  test("is dead, with a reason that says what to do, if there is no such destination", async () => {
    const { delivery, published } = setup(more);
    const lost = row({ destination: "Standby", isPinned: true });
    expect(delivery.destinationOf(lost)).toBeUndefined();
    expect((await delivery.deliver(lost, never)).outcome).toEqual({
      ...CLAIM,
      kind: "dead",
      attempted: false,
      reason:
        'the row is pinned to the destination "Standby", which is not configured: configure it, or replay the row to another one',
    });
    expect(published).toEqual([]);
  });
});

test("a route to an unknown destination is refused, with the known ones", () => {
  expect(() => setup({ route: { destination: "shpo" } })).toThrow(
    "the route orders.* names the unknown destination shpo; known: shop",
  );
});

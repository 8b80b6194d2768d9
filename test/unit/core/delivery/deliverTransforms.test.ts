import { describe, expect, test } from "@jest/globals";
import type { TransformStage } from "../../../../src/core/delivery/deliver.ts";
import { PublishError, StoppingError } from "../../../../src/model/errors.ts";
import { broken, CLAIM, failing, never, row, setup } from "./deliverSetup.ts";

describe("transforms", () => {
  const append = (text: string): TransformStage => ({ onError: "Fail", run: async (body) => body + text });

  test("run in the order route, destination, each on the output of the one before", async () => {
    const { delivery, published } = setup({
      route: { transform: append("+route") },
      target: { transform: append("+destination") },
    });
    await delivery.deliver(row({ payload: "p" }), never);
    expect(published[0]?.body).toBe("p+route+destination");
  });

  test("with onError Fail fail the delivery, which is retried and counted", async () => {
    const { delivery, published, calls, lines } = setup({ target: { transform: broken("Fail") } });
    expect((await delivery.deliver(row(), never)).outcome).toEqual({
      ...CLAIM,
      kind: "retry",
      delayMs: 1000,
      reason: "the destination transform failed: no number near ***",
    });
    expect(published).toEqual([]);
    expect(calls[0]).toBe("transformFailure(Fail)");
    expect(lines[0]?.fields.code).toBe("transform_failed");
  });

  test("with onError Skip pass their input on", async () => {
    const { delivery, published, calls } = setup({
      route: { transform: broken("Skip") },
      target: { transform: append("+destination") },
    });
    expect((await delivery.deliver(row({ payload: "p" }), never)).outcome).toMatchObject({ kind: "sent" });
    expect(published[0]?.body).toBe("p+destination");
    expect(calls[0]).toBe("transformFailure(Skip)");
  });

  test.each(["Fail", "Skip", "Dead"] as const)(
    "with onError %s fail the delivery when they cannot be run at all",
    async (onError) => {
      const run = failing(
        new PublishError("transform_unavailable", "no transform could be run"),
      ) as () => Promise<never>;
      const { delivery, published, calls } = setup({ target: { transform: { onError, run } } });
      expect((await delivery.deliver(row(), never)).outcome).toMatchObject({
        kind: "retry",
        reason: "no transform could be run",
      });
      expect(published).toEqual([]);
      expect(calls).not.toContain(`transformFailure(${onError})`);
    },
  );

  test.each(["Fail", "Skip", "Dead"] as const)(
    "with onError %s give the row back when a stop takes them away",
    async (onError) => {
      const controller = new AbortController();
      const run = async () => {
        controller.abort(new StoppingError());
        throw new Error("the evaluator was closed");
      };
      const { delivery, published, calls } = setup({ route: { transform: { onError, run } } });
      expect((await delivery.deliver(row(), controller.signal)).outcome).toEqual({ ...CLAIM, kind: "release" });
      expect(published).toEqual([]);
      expect(calls).toEqual([]);
    },
  );

  test("with onError Dead make the row dead at once, without a counted attempt", async () => {
    const { delivery, published, calls } = setup({ route: { transform: broken("Dead") } });
    expect((await delivery.deliver(row(), never)).outcome).toEqual({
      ...CLAIM,
      kind: "dead",
      attempted: false,
      reason: "the route transform failed: no number near ***",
    });
    expect(published).toEqual([]);
    expect(calls).toEqual([
      "transformFailure(Dead)",
      "outboxMessages(dead, 1)",
      "outboxDestinationMessage(shop, dead)",
    ]);
  });
});

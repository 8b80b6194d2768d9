import { describe, expect, test } from "@jest/globals";
import { compileAddress } from "../../../../src/core/delivery/template.ts";
import { PublishError } from "../../../../src/model/errors.ts";
import { broken, CLAIM, failing, never, row, SECRET, setup } from "./deliverSetup.ts";

describe("a delivery that fails", () => {
  test("is retried after the backoff while attempts are left", async () => {
    const { delivery, calls, lines } = setup({ publish: failing(new PublishError("status_5xx", "answered 500")) });
    expect((await delivery.deliver(row({ attempt: 1 }), never)).outcome).toEqual({
      ...CLAIM,
      kind: "retry",
      delayMs: 2000,
      reason: "answered 500",
    });
    expect(calls).toEqual([
      "outboxPublishDuration(http, 0.5)",
      "outboxMessages(failed, 1)",
      "outboxDestinationMessage(shop, failed)",
    ]);
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatchObject({
      level: "warn",
      fields: { attempt: 1, outcome: "retry", code: "status_5xx", reason: "answered 500", retryDelayMs: 2000 },
    });
  });

  test("that can never succeed makes the row dead at once, with its attempt counted", async () => {
    const error = new PublishError("message_invalid", "the routing key has 300 bytes", { isPermanent: true });
    const { delivery, calls } = setup({ publish: failing(error) });
    expect((await delivery.deliver(row(), never)).outcome).toEqual({
      ...CLAIM,
      kind: "dead",
      attempted: true,
      reason: "the routing key has 300 bytes",
    });
    expect(calls).toContain("outboxMessages(dead, 1)");
  });

  test("waits as long as the receiver asks", async () => {
    const { delivery } = setup({ publish: failing(new PublishError("status_4xx", "slow", { retryAfterMs: 7000 })) });
    expect((await delivery.deliver(row(), never)).outcome).toMatchObject({ kind: "retry", delayMs: 7000 });
  });

  test("is dead when the attempts are used up", async () => {
    const { delivery, calls, lines } = setup({ publish: failing(new PublishError("timeout", "too slow")) });
    expect((await delivery.deliver(row({ attempt: 4 }), never)).outcome).toEqual({
      ...CLAIM,
      kind: "dead",
      attempted: true,
      reason: "too slow",
    });
    expect(calls).toContain("outboxMessages(dead, 1)");
    expect(calls).toContain("outboxDestinationMessage(shop, dead)");
    expect(lines[0]).toMatchObject({ level: "error", fields: { outcome: "dead", code: "timeout" } });
  });

  test.each([
    ["whose attempts are used up", new PublishError("timeout", "too slow"), 4],
    ["that can never succeed", new PublishError("message_invalid", "too slow", { isPermanent: true }), 0],
  ])("%s parks the row where its route says so, and counts as failed", async (_, error, attempt) => {
    const { delivery, calls, lines } = setup({ publish: failing(error), route: { onExhausted: "park" } });
    const { outcome } = await delivery.deliver(row({ attempt }), never);
    expect(outcome).toEqual({ ...CLAIM, kind: "park", reason: "too slow" });
    expect(calls).toEqual([
      "outboxPublishDuration(http, 0.5)",
      "outboxMessages(failed, 1)",
      "outboxDestinationMessage(shop, failed)",
      "outboxParked(shop)",
    ]);
    expect(lines).toMatchObject([
      {
        level: "error",
        message: expect.stringMatching(/^parked: .*svc parked retry.*svc parked discard/),
        fields: { outcome: "park", code: error.code, reason: "too slow" },
      },
    ]);
  });

  test("costs a probe neither an attempt nor a count if the receiver did not work, and only then", async () => {
    const probe = async (error: PublishError) => {
      const { delivery, calls } = setup({ publish: failing(error) });
      const { outcome, report } = await delivery.deliver(row({ attempt: 4 }), never, true);
      return [outcome.kind, report.receiver, calls.filter((call) => call.startsWith("outboxMessages"))];
    };
    expect(await probe(new PublishError("status_5xx", "503"))).toEqual(["release", "failed", []]);
    expect(await probe(new PublishError("no_stream", "no stream"))).toEqual(["release", "unknown", []]);
    expect(await probe(new PublishError("other", "a bug"))).toEqual(["release", "unknown", []]);
    expect(await probe(new PublishError("status_4xx", "400"))).toEqual([
      "dead",
      "healthy",
      ["outboxMessages(dead, 1)"],
    ]);
    const isEmpty = new PublishError("address_empty", "the address is empty");
    expect(await probe(isEmpty)).toEqual(["dead", "unasked", ["outboxMessages(dead, 1)"]]);
  });

  test("with attempts left is retried also if its route parks", async () => {
    const { delivery, calls } = setup({
      publish: failing(new PublishError("timeout", "too slow")),
      route: { onExhausted: "park" },
    });
    expect((await delivery.deliver(row({ attempt: 3 }), never)).outcome).toMatchObject({ kind: "retry" });
    expect(calls).not.toContain("outboxParked(shop)");
  });

  test("without an attempt makes the row dead also if its route parks", async () => {
    const { delivery } = setup({ route: { onExhausted: "park", transform: broken("Dead") } });
    for (const each of [row(), row({ payload: null })]) {
      const { outcome } = await delivery.deliver(each, never);
      expect(outcome).toMatchObject({ kind: "dead", attempted: false });
    }
  });

  test.each([
    [new Error("boom"), "boom"],
    ["text", "text"],
    [undefined, "undefined"],
    [Object.create(null), "an error without a text was thrown"],
  ])("for any other reason is a failed attempt with its text: %p", async (thrown, reason) => {
    const { delivery } = setup({ publish: failing(thrown) });
    expect((await delivery.deliver(row(), never)).outcome).toMatchObject({ kind: "retry", reason });
  });

  test("tells its reason without secrets, on one line, cut to its limit, in the row and in the log", async () => {
    const { delivery, lines } = setup({
      publish: failing(new PublishError("status_4xx", `bad\u0000 ${SECRET}\n${"x".repeat(500)}`)),
    });
    const { outcome } = await delivery.deliver(row(), never);
    expect(outcome).toMatchObject({ reason: `bad *** ${"x".repeat(191)}…` });
    expect(JSON.stringify([outcome, lines])).not.toContain(SECRET);
  });

  test("fails when its address is empty, without a publish", async () => {
    const { delivery, published, calls } = setup({
      target: { address: compileAddress({ name: "subject", template: "{{ aggregateType }}", from: undefined }) },
    });
    const { outcome } = await delivery.deliver(row(), never);
    expect(outcome).toMatchObject({ kind: "retry", reason: expect.stringContaining("the subject is empty") });
    expect(published).toEqual([]);
    expect(calls).not.toContainEqual(expect.stringContaining("outboxPublishDuration"));
  });
});

describe("the attempts of a destination", () => {
  const publish = failing(new PublishError("status_5xx", "answered 500"));

  test("win over the column's default, in the log too", async () => {
    const { delivery, lines } = setup({ publish, target: { maxAttempts: 7 } });
    expect((await delivery.deliver(row({ attempt: 5, maxAttempts: 5 }), never)).outcome.kind).toBe("retry");
    expect((await delivery.deliver(row({ attempt: 6, maxAttempts: 5 }), never)).outcome.kind).toBe("dead");
    expect(lines[0]).toMatchObject({ fields: { maxAttempts: 7 } });
  });

  test("leave a row alone for which another number was chosen", async () => {
    const { delivery } = setup({ publish, target: { maxAttempts: 7 } });
    expect((await delivery.deliver(row({ attempt: 3, maxAttempts: 4 }), never)).outcome.kind).toBe("dead");
    expect((await delivery.deliver(row({ attempt: 7, maxAttempts: 9 }), never)).outcome.kind).toBe("retry");
  });
});

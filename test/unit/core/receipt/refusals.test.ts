import { describe, expect, test } from "@jest/globals";
import { countRefusals } from "../../../../src/core/receipt/refusals.ts";
import { recordingLog, recordingMetrics } from "../../../support/recorders.ts";

function setup() {
  const { log, lines } = recordingLog();
  const { metrics, calls } = recordingMetrics();
  let due: (() => void)[] = [];
  const answered = countRefusals({ source: "orders", metrics, log, timer: (_, callback) => void due.push(callback) });
  return {
    calls,
    refuse: (status: number, error: string, times = 1) => {
      for (let n = 0; n < times; n++) answered(status, JSON.stringify({ error }));
    },
    /** A minute passes: everything that waited for it is called. */
    minute: () => {
      const called = due;
      due = [];
      for (const callback of called) callback();
      return due.length;
    },
    /** What was logged since the last call. */
    logged: () => lines.splice(0).map(({ fields: { source: _, ...fields } }) => fields),
  };
}

describe("refusals", () => {
  test("are counted by reason, other answers are not", () => {
    const { refuse, calls } = setup();
    for (const status of [200, 202, 207, 400, 401, 403, 405, 413, 415, 422, 429, 500, 503, 418]) refuse(status, "no");
    const reasons = "invalid credentials handshake method too_large encoding transform rate_limited storage";
    expect(calls).toEqual(
      [...reasons.split(" "), "unavailable", "other"].map((reason) => `inboxRefused(orders, ${reason})`),
    );
  });

  test("are logged at once, then as a count a minute until a minute has none", () => {
    const { refuse, minute, logged } = setup();
    refuse(401, "the Bearer token is wrong", 20);
    const line = { refusal: "credentials", status: 401, reason: "the Bearer token is wrong" };
    expect(logged()).toEqual([{ ...line, count: 1 }]);
    refuse(413, "too large");
    expect(logged()).toMatchObject([{ refusal: "too_large", count: 1 }]);
    refuse(401, "missing Authorization header");
    expect(minute()).toBe(1);
    expect(logged()).toEqual([{ ...line, reason: "missing Authorization header", count: 20 }]);
    expect(minute()).toBe(0);
    expect(logged()).toEqual([]);
    refuse(401, "the Bearer token is wrong");
    expect(logged()).toEqual([{ ...line, count: 1 }]);
  });

  test.each([
    [
      400,
      "no idempotency key at $.id: found nothing; expected text",
      "no idempotency key at $.id: found nothing; expected text",
    ],
    [422, "Transform failed: cannot cast secret\nto a number", "Transform failed"],
    [
      400,
      "item 12: the database cannot hold this message: Token secret is invalid",
      "item 12: the database cannot hold this message",
    ],
    [413, "x".repeat(1000), "x".repeat(500)],
    [429, "", "more than rateLimit.requestsPerMinute"],
  ])("of %i with %j say no more than %j", (status, error, reason) => {
    const { refuse, logged } = setup();
    refuse(status, error);
    expect(logged()).toMatchObject([{ reason }]);
  });
});

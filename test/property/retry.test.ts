import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { createRetryPolicy } from "../../src/core/delivery/failure.ts";
import { settings } from "./settings.ts";

const LONGEST_MS = 60_000;
const attempts = fc.oneof(fc.nat({ max: 20 }), fc.nat({ max: 2 ** 31 - 1 }));
const bases = fc.oneof(fc.nat({ max: 2000 }), fc.nat({ max: Number.MAX_SAFE_INTEGER }));
const chances = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
const requests = fc.option(fc.oneof(fc.nat({ max: 100_000 }), fc.double({ min: 0, noNaN: true })), { nil: undefined });

describe("the delay before a retry", () => {
  test("lies between the backoff and a quarter more, or is what the receiver asks for, and never above a minute", () => {
    fc.assert(
      fc.property(attempts, bases, chances, requests, (attempt, base, chance, retryAfterMs) => {
        const delay = createRetryPolicy(undefined, base)({ attempt, retryAfterMs }, () => chance);
        const backoff = Math.min(LONGEST_MS, base === 0 ? 0 : base * 2 ** attempt);
        const asked = Math.min(LONGEST_MS, Math.floor(retryAfterMs ?? 0));
        expect(Number.isInteger(delay)).toBe(true);
        expect(delay).toBeGreaterThanOrEqual(Math.max(backoff, asked));
        expect(delay).toBeLessThanOrEqual(Math.max(Math.min(LONGEST_MS, backoff * 1.25), asked));
      }),
      settings(),
    );
  });

  test("never shrinks from one attempt to the next by more than chance explains", () => {
    fc.assert(
      fc.property(attempts, bases, chances, (attempt, base, chance) => {
        const [now, next] = [attempt, attempt + 1].map((each) =>
          createRetryPolicy(undefined, base)({ attempt: each, retryAfterMs: undefined }, () => chance),
        );
        expect(next).toBeGreaterThanOrEqual(now ?? 0);
      }),
      settings(),
    );
  });
});

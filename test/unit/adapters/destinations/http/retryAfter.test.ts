import { describe, expect, test } from "@jest/globals";
import { retryAfterMs } from "../../../../../src/adapters/destinations/http/errors.ts";

const NOW = Date.UTC(1994, 10, 6, 8, 49, 7);

describe("Retry-After", () => {
  test.each([
    ["0", 0],
    ["120", 120_000],
    [" 5 ", 5000],
    ["9".repeat(400), Number.MAX_SAFE_INTEGER],
    ["Sun, 06 Nov 1994 08:49:37 GMT", 30_000],
    ["Sunday, 06-Nov-94 08:49:37 GMT", 30_000],
    ["Sun Nov  6 08:49:37 1994", 30_000],
    ["Sun, 06 Nov 1994 08:00:00 GMT", 0],
  ])("%j asks for %d ms", (value, ms) => {
    expect(retryAfterMs(503, value, NOW)).toBe(ms);
  });

  test.each([undefined, "", "soon", "-1", "1.5", "1e3", "Sun, 99 Nov 1994", "1994-11-06T08:49:37Z", "0x10"])(
    "%j asks for nothing",
    (value) => {
      expect(retryAfterMs(503, value, NOW)).toBeUndefined();
    },
  );

  test.each([
    [429, 5000],
    [500, undefined],
    [301, undefined],
  ])("of an answer %d asks for %j ms", (status, ms) => {
    expect(retryAfterMs(status, "5", NOW)).toBe(ms);
  });
});

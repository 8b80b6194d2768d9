import { describe, expect, test } from "@jest/globals";
import { parseReason } from "../../../src/core/operatorText.ts";
import { parseParkedChange } from "../../../src/core/parkedRequest.ts";

describe("a reason", () => {
  test("comes without blanks around it", () => {
    expect(parseReason("  they migrate\n")).toBe("they migrate");
    expect(parseReason("\u00a0")).toBe("\u00a0");
    expect(parseReason("x".repeat(1000))).toHaveLength(1000);
  });

  test.each([
    ["", "not blank"],
    [" \n\t", "not blank"],
    ["x".repeat(1001), "at most 1000 characters is expected; this one has 1001"],
    ["a\0b", "without NUL"],
    ["a\ud800b", "lone surrogates"],
  ])("is refused: %j", (text, expected) => {
    expect(() => parseReason(text)).toThrow(expected);
  });

  test("of parked rows may be as long as that of a pause", () => {
    const reason = "x".repeat(1000);
    expect(parseParkedChange({ all: true, reason }, true).reason).toBe(reason);
    expect(() => parseParkedChange({ all: true, reason: `${reason}x` }, true)).toThrow("at most 1000 characters");
  });
});

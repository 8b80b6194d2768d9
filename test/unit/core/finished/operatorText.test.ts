import { describe, expect, test } from "@jest/globals";
import { callerOf, parseBy, parseReason } from "../../../../src/core/finished/operatorText.ts";
import { parseParkedChange } from "../../../../src/core/finished/parkedRequest.ts";

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

describe("who makes a change", () => {
  test.each(["a", "alice", "Zoë Müller", "ops/on-call #3", "爱丽丝", "🙂".repeat(100), "x".repeat(100)])(
    "may be %j",
    (text) => {
      expect(parseBy(text)).toBe(text);
    },
  );

  test.each([
    "",
    " ",
    " a",
    "a ",
    "a\n",
    "a\nb",
    "a\0b",
    "a\u202eb",
    "a\u200bb",
    "a\u2028b",
    "a\ud800b",
    "x".repeat(101),
  ])("is refused: %j", (text) => {
    expect(() => parseBy(text)).toThrow("1 to 100 printable characters");
  });

  test("is the caller's word, and cannot pass for somebody at the command", () => {
    expect(callerOf("alice")).toBe("alice (admin route)");
    expect(callerOf("ada@ops-1")).toBe("ada@ops-1 (admin route)");
    expect(callerOf(undefined)).toBe("admin route");
  });

  test("is read of a change of parked rows", () => {
    expect(parseParkedChange({ all: true, by: "alice" }, false).by).toBe("alice (admin route)");
    expect(parseParkedChange({ all: true, by: null }, false).by).toBe("admin route");
    expect(() => parseParkedChange({ all: true, by: 7 }, false)).toThrow('"by" is a number; a string is expected');
  });
});

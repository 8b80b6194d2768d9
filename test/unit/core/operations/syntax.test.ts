import { describe, expect, test } from "@jest/globals";
import { BY, instant, PAUSE_DURATION, REASON } from "../../../../src/core/operations/syntax.ts";

describe("an instant", () => {
  test.each([
    ["2026-01-05T08:30:00Z", "2026-01-05T08:30:00.000000Z"],
    ["2026-01-05t08:30:00z", "2026-01-05T08:30:00.000000Z"],
    ["2026-01-05T08:30Z", "2026-01-05T08:30:00.000000Z"],
    ["2026-01-05T08:30:00,25Z", "2026-01-05T08:30:00.250000Z"],
    ["2026-01-05T08:30:00.123456Z", "2026-01-05T08:30:00.123456Z"],
    ["2026-01-05T00:30:00+01:00", "2026-01-04T23:30:00.000000Z"],
    ["2026-01-05T23:30:00-0130", "2026-01-06T01:00:00.000000Z"],
    ["2026-01-05T08:30:00+02", "2026-01-05T06:30:00.000000Z"],
    ["2024-02-29T12:00:00Z", "2024-02-29T12:00:00.000000Z"],
    ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"],
    ["0099-12-31T00:00:00Z", "0099-12-31T00:00:00.000000Z"],
    ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"],
  ])("%s is %s", (text, expected) => {
    expect(instant("after").parse(text)).toBe(expected);
    expect(instant("before").parse(text)).toBe(expected);
  });

  test("finer than a microsecond keeps every stored time on its side of the bound", () => {
    expect(instant("after").parse("2026-01-05T08:30:00.1234567Z")).toBe("2026-01-05T08:30:00.123456Z");
    expect(instant("before").parse("2026-01-05T08:30:00.1234567Z")).toBe("2026-01-05T08:30:00.123457Z");
    expect(instant("before").parse("2026-01-05T08:30:00.123456000Z")).toBe("2026-01-05T08:30:00.123456Z");
    expect(instant("before").parse("2026-12-31T23:59:59.9999999Z")).toBe("2027-01-01T00:00:00.000000Z");
  });

  test.each([
    "2026-01-05",
    "2026-01-05T08:30:00",
    "2026-01-05 08:30:00Z",
    "2026-1-5T08:30:00Z",
    "20260105T083000Z",
    "2026-01-05T08Z",
    "2026-01-05T08:30:00.Z",
    "+012026-01-05T08:30:00Z",
    "-2026-01-05T08:30:00Z",
    " 2026-01-05T08:30:00Z",
    "2026-01-05T08:30:00Z\n",
    "2026-01-05T08:30:00 UTC",
    "2026-01-05T08:30:00+2:00",
    "٢٠٢٦-01-05T08:30:00Z",
    "now",
    "infinity",
    "",
  ])("%j is refused: the format", (text) => {
    expect(() => instant("after").parse(text)).toThrow("an ISO-8601 instant with Z or an offset, such as");
  });

  test.each([
    "2026-13-01T00:00:00Z",
    "2026-00-01T00:00:00Z",
    "2026-02-29T00:00:00Z",
    "2026-04-31T00:00:00Z",
    "2026-01-00T00:00:00Z",
    "2026-01-05T24:00:00Z",
    "2026-01-05T08:60:00Z",
    "2026-01-05T08:30:60Z",
    "2026-01-05T08:30:00+24:00",
    "2026-01-05T08:30:00+01:60",
  ])("%s is refused: there is no such time", (text) => {
    expect(() => instant("after").parse(text)).toThrow("a date, a time and an offset that exist are expected");
  });

  test.each(["0000-12-31T00:00:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"])(
    "%s is refused: no database here holds that year",
    (text) => {
      expect(() => instant("after").parse(text)).toThrow("a year from 0001 to 9999 in UTC is expected");
    },
  );
});

describe("a reason", () => {
  test("comes without blanks around it", () => {
    expect(REASON.parse("  they migrate\n")).toBe("they migrate");
    expect(REASON.parse("\u00a0")).toBe("\u00a0");
    expect(REASON.parse("x".repeat(1000))).toHaveLength(1000);
  });

  test.each([
    ["", "not blank"],
    [" \n\t", "not blank"],
    ["x".repeat(1001), "at most 1000 characters is expected; this one has 1001"],
    ["a\0b", "without NUL"],
    ["a\ud800b", "lone surrogates"],
  ])("is refused: %j", (text, expected) => {
    expect(() => REASON.parse(text)).toThrow(expected);
  });
});

describe("who makes a change", () => {
  test.each(["a", "alice", "Zoë Müller", "ops/on-call #3", "爱丽丝", "🙂".repeat(100), "x".repeat(100)])(
    "may be %j",
    (text) => {
      expect(BY.parse(text)).toBe(text);
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
    expect(() => BY.parse(text)).toThrow("1 to 100 printable characters");
  });
});

describe("the time of a pause", () => {
  test.each([
    ["30s", 30_000],
    ["15m", 900_000],
    ["2h", 7_200_000],
    ["9999d", 863_913_600_000],
  ])("%s", (text, ms) => {
    expect(PAUSE_DURATION.parse(text)).toBe(ms);
  });

  test.each(["0s", "", "2", "h", "1.5h", "-1h", "2 h", "02h", "10000s", "2w", "999999999d"])(
    "is refused: %j",
    (text) => {
      expect(() => PAUSE_DURATION.parse(text)).toThrow(
        "a whole number from 1 to 9999 and one of the suffixes s, m, h, d",
      );
    },
  );
});

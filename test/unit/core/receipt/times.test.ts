import { describe, expect, test } from "@jest/globals";
import { parseTime, warnOfTimes } from "../../../../src/core/receipt/times.ts";
import { fuzz } from "../../../property/fuzz.ts";
import { ManualClock, recordingLog } from "../../../support/recorders.ts";

const NOON = Date.UTC(2026, 10, 23, 12);

describe("a time in a message", () => {
  test.each([
    ["2026-11-23T12:00:00Z", NOON],
    [" 2026-11-23t12:00:00.000z ", NOON],
    ["2026-11-23 12:00", NOON],
    ["2026-11-23T13:30:00+01:30", NOON],
    ["2026-11-23T07:00:00-0500", NOON],
    ["2026-11-23T14:00+02", NOON],
    ["2026-11-23T12:00:00.123456789Z", NOON + 123],
    ["2026-11-23T12:00:00,5Z", NOON + 500],
    ["2026-11-23T11:59:60Z", NOON],
    ["2026-11-23", NOON - 12 * 3_600_000],
    [String(NOON), NOON],
    [String(NOON / 1000), NOON],
    [`${NOON / 1000}.25`, NOON + 250],
    ["0", 0],
    ["99999999999", 99_999_999_999_000],
    ["100000000000", 100_000_000_000],
    ["9999-12-31T23:59:59.999Z", 253_402_300_799_999],
  ])("%s is read", (text, ms) => {
    expect(parseTime(text)).toBe(ms);
  });

  test.each([
    ...["", " ", "now", "-1", "+5", "1e9", "0x10", "NaN", "Infinity", "1.", "12345678901234567890"],
    ...["2026-02-30T00:00:00Z", "2026-13-01", "2026-11-23T25:00:00Z", "2026-11-23T12:61:00Z", "2026-11-23T12:00:61Z"],
    ...["26-11-23", "2026-11-23T12", "20261123T120000Z", "2026-W48-1", "12:00", "2026-11-23T12:00:00+24:00"],
    ...["1969-12-31T23:59:59Z", "+010000-01-01T00:00:00Z", "253402300800000", "Mon, 23 Nov 2026 12:00:00 GMT"],
  ])("%j is none", (text) => {
    expect(parseTime(text)).toBeNull();
  });

  test("is what it was written from, and any text is a time or none", () => {
    const last = 253_402_300_799_999;
    fuzz(
      (dice) => dice.pick([0, last, Math.floor((dice.below(2 ** 32) / 2 ** 32) * last)]),
      (ms) => parseTime(new Date(ms).toISOString()) === ms,
    );
    const parts = ["2026", "-", "11", ":", "T", "Z", "+", ".", "9", "60", " ", "e"];
    fuzz(
      (dice) => Array.from({ length: dice.below(15) }, () => dice.pick(parts)).join(""),
      (text) => {
        const ms = parseTime(text);
        return ms === null || (Number.isSafeInteger(ms) && ms >= 0 && ms <= last);
      },
    );
  });
});

test("times that cannot be read are warned of once an hour for each key", () => {
  const clock = new ManualClock();
  const { log, lines } = recordingLog();
  const unreadable = warnOfTimes("orders", { log, clock });
  for (const key of ["expiresAtPath", "expiresAtPath", "expiresAtHeader"]) unreadable(key);
  clock.advance(3_599_999);
  unreadable("expiresAtPath");
  expect(lines.map(({ fields }) => fields)).toEqual([
    { source: "orders", key: "expiresAtPath" },
    { source: "orders", key: "expiresAtHeader" },
  ]);
  clock.advance(1);
  unreadable("expiresAtPath");
  expect(lines).toHaveLength(3);
});

import { describe, expect, test } from "@jest/globals";
import { compileEvaluation } from "../../../../src/core/transform/evaluation.ts";

const evaluate = async (expression: string): Promise<unknown> =>
  JSON.parse(await compileEvaluation(expression, { timeoutMs: 20_000, maxDepth: 100 }).evaluate("{}", {}));

/** 2026-01-05T08:30:00Z */
const AT = Date.UTC(2026, 0, 5, 8, 30);

describe("an offset from UTC", () => {
  test.each([
    ["+05:30", "2026-01-05T14:00:00.000+05:30"],
    ["+0530", "2026-01-05T14:00:00.000+05:30"],
    ["0530", "2026-01-05T14:00:00.000+05:30"],
    ["-0530", "2026-01-05T03:00:00.000-05:30"],
    ["-03:30", "2026-01-05T05:00:00.000-03:30"],
    ["-0800", "2026-01-05T00:30:00.000-08:00"],
    ["-08:00", "2026-01-05T00:30:00.000-08:00"],
    ["-08", "2026-01-05T00:30:00.000-08:00"],
    ["+1", "2026-01-05T09:30:00.000+01:00"],
    ["0", "2026-01-05T08:30:00.000Z"],
    ["Z", "2026-01-05T08:30:00.000Z"],
    ["+00:00", "2026-01-05T08:30:00.000Z"],
  ])("%s is written correctly", async (zone, written) => {
    expect(await evaluate(`$fromMillis(${AT}, (), "${zone}")`)).toBe(written);
    // The text means the same instant.
    expect(Date.parse(written)).toBe(AT);
    expect(await evaluate(`$millis() = $toMillis($now((), "${zone}"))`)).toBe(true);
    expect(await evaluate(`$eval("$fromMillis(${AT}, (), '${zone}')")`)).toBe(written);
  });

  test("has a sign only before its hours", async () => {
    expect(await evaluate(`$fromMillis(${AT}, "[H01]:[m01] [Z1] [z01]", "-05:30")`)).toBe("03:00 -5:30 GMT-05:30");
  });

  test.each(["Europe/Berlin", "", "+5:3", "+05:60", "-00:30", "EST"])("that is none fails: %p", async (zone) => {
    await expect(evaluate(`$fromMillis(${AT}, (), "${zone}")`)).rejects.toThrow("the time zone");
    await expect(evaluate(`$now((), "${zone}")`)).rejects.toThrow(zone);
  });

  test.each([
    ["[Y0001]-[M01]-[D01]T[H01]:[m01]:[s01][Z]", "2026-01-05T03:00:00-05:30"],
    ["[Y0001]-[M01]-[D01]T[H01]:[m01]:[s01][Z0001]", "2026-01-05T03:00:00-0530"],
    ["[Y0001]-[M01]-[D01]T[H01]:[m01]:[s01][Z]", "2026-01-05T14:00:00+05:30"],
    ["[Y0001]-[M01]-[D01]T[H01]:[m01]:[s01][Z]", "2026-01-05T00:30:00-08:00"],
    ["[Y0001]-[M01]-[D01]T[H01]:[m01]:[s01][Z]", "2026-01-05T08:30:00Z"],
    ["[Y0001]-[M01]-[D01]T[H01]:[m01]:[s01][Z0001]", "2026-01-05T08:30:00Z"],
    ["[H01]:[m01]:[s01] [z] [D01]-[M01]-[Y0001]", "05:00:00 GMT-03:30 05-01-2026"],
    ["[D01]-[M01]-[Y0001] [H01]:[m01] [Z]", "05-01-2026 08:30 +00:00"],
  ])("is read correctly: %s of %s", async (picture, text) => {
    expect(await evaluate(`$toMillis("${text}", "${picture}")`)).toBe(AT);
  });

  test("of a text that does not fit its picture gives nothing, as ever", async () => {
    expect(await evaluate(`$exists($toMillis("5 January -05:30", "[Y0001] [Z]"))`)).toBe(false);
    expect(await evaluate("$exists($fromMillis(nothing))")).toBe(false);
  });
});

import { describe, expect, test } from "@jest/globals";
import { shortened, withThresholds } from "../../support/prometheus.ts";

/** What the live tests do to the text of the rules. */

const RULES = `groups:
  - name: svc
    rules:
      - alert: SvcLate
        expr: age > 60 and rate(sent[5m]) > 60
        for: 5m
        annotations:
          description: "Over 60 s for 5m."
      - alert: SvcStuck
        expr: >-
          age > 900
          unless sent offset 15m
        for: 1h
`;

describe("a threshold", () => {
  test("is replaced in the expression of its alert alone", () => {
    const changed = withThresholds(RULES, [{ alert: "SvcStuck", text: "> 900", with: "> 1" }]);
    expect(changed).toBe(RULES.replace("> 900", "> 1"));
  });

  test.each([
    ["SvcLate", "> 60", 2],
    ["SvcLate", "> 900", 0],
    ["SvcLate", "for 5m", 0],
    ["SvcGone", "> 60", 0],
  ])("that is not there exactly once is an error: %s, %s", (alert, text, count) => {
    expect(() => withThresholds(RULES, [{ alert, text, with: "> 1" }])).toThrow(
      `the expression of ${alert} has "${text}" ${count} times; expected is once`,
    );
  });
});

test("waits, ranges and offsets are shortened, and texts are not", () => {
  expect(shortened(RULES, 300)).toBe(
    RULES.replace("[5m]", "[1000ms]")
      .replace("for: 5m", "for: 1000ms")
      .replace("offset 15m", "offset 3000ms")
      .replace("for: 1h", "for: 12000ms"),
  );
});

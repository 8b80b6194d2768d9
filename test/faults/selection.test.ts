import { readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { MOMENTARY, planFaults } from "../support/chaos/plan.ts";
import { LASTING, selectedFaults } from "../support/chaos/selection.ts";

test("every fault is selected unless somebody chooses", () => {
  expect(selectedFaults({})).toEqual(new Set([...LASTING, ...MOMENTARY]));
});

test("some faults alone, and all but some", () => {
  expect(selectedFaults({ SVC_FAULTS_ONLY: "applications, kill" })).toEqual(new Set(["applications", "kill"]));
  const most = selectedFaults({ SVC_FAULTS_WITHOUT: "restore,postgres fast" });
  expect(most).not.toContain("restore");
  expect(most.size).toBe(LASTING.length + MOMENTARY.length - 2);
  expect(selectedFaults({ SVC_FAULTS_ONLY: "kill,clock", SVC_FAULTS_WITHOUT: "clock" })).toEqual(new Set(["kill"]));
});

test("a name that no fault has is refused, with those that there are", () => {
  expect(() => selectedFaults({ SVC_FAULTS_WITHOUT: "restores" })).toThrow(
    /^SVC_FAULTS_WITHOUT names "restores", which is not a fault\. The faults are: wrong clocks, .*, restore, /,
  );
});

test("the same seed draws the same faults of those that are selected, and a longer run begins with those of a shorter one", () => {
  const isSelected = (kind: string) => kind === "kill" || kind === "clock";
  const short = planFaults(7, 60_000, 5000, isSelected);
  const long = planFaults(7, 120_000, 5000, isSelected);
  expect(long.slice(0, short.length)).toEqual(short);
  expect(new Set(short.map(({ kind }) => kind))).toEqual(new Set(["kill", "clock"]));
  expect(planFaults(7, 60_000, 5000, () => false)).toEqual([]);
});

test("each fault is described", () => {
  const text = readFileSync(new URL("../../docs/faults.md", import.meta.url), "utf8");
  expect([...LASTING, ...MOMENTARY].filter((name) => !text.includes(`\`${name}\``))).toEqual([]);
});

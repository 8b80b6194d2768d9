import { readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { MOMENTARY, type MomentaryFault, planEachOnce, planFaults } from "../support/chaos/plan.ts";
import { LASTING, selectedFaults } from "../support/chaos/selection.ts";

const planned = (durationMs: number, isSelected: (kind: MomentaryFault) => boolean) => ({
  ...{ seed: 7, leaseMs: 5000, replicas: 3 },
  ...{ durationMs, isSelected },
});

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

test("a name that no fault has is refused, with a list of the faults", () => {
  expect(() => selectedFaults({ SVC_FAULTS_WITHOUT: "restores" })).toThrow(
    /^SVC_FAULTS_WITHOUT names "restores", which is not a fault\. The faults are: wrong clocks, .*, restore, /,
  );
});

test("the same seed draws the same of the selected faults, and a longer run begins with the faults of a shorter one", () => {
  const isSelected = (kind: string) => kind === "kill" || kind === "clock";
  const short = planFaults(planned(60_000, isSelected));
  const long = planFaults(planned(120_000, isSelected));
  expect(long.slice(0, short.length)).toEqual(short);
  expect(new Set(short.map(({ kind }) => kind))).toEqual(new Set(["kill", "clock"]));
  expect(planFaults(planned(60_000, () => false))).toEqual([]);
});

test("a short run has each fault that is selected once, within its time", () => {
  const all = planEachOnce(planned(18_000, () => true));
  expect(all.map(({ kind }) => kind).sort()).toEqual([...MOMENTARY].sort());
  expect(all.filter(({ atMs }) => atMs < 0 || atMs > 18_000)).toEqual([]);
  const some = planEachOnce(planned(18_000, (kind) => kind !== "restore"));
  expect(some).toEqual(all.filter(({ kind }) => kind !== "restore"));
});

test("each fault is described", () => {
  const text = readFileSync(new URL("README.md", import.meta.url), "utf8");
  expect([...LASTING, ...MOMENTARY].filter((name) => !text.includes(`\`${name}\``))).toEqual([]);
});

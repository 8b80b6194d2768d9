import { describe, test } from "@jest/globals";
import fc from "fast-check";
import { failOnLeaks } from "../support/leaks.ts";
import { type Answers, type Plan, type Progress, plans, type Step, type StepOf } from "./cells/steps.ts";
import { World } from "./cells/world.ts";
import { settings } from "./settings.ts";

failOnLeaks();

const RUNS = 200;

const [A, B, C] = [0, 1, 2];
const ALL: Answers = { calls: Number.POSITIVE_INFINITY, pick: 0, fate: "waits" };
const receive = (key: number): StepOf<"receive"> => ({
  does: "receive",
  process: 0,
  keys: [key],
  answers: ALL,
  isDelivered: true,
});
const move = (keys: readonly number[], to: number, progress?: Progress, mover = 0): Step => ({
  does: "move",
  mover,
  keys: [...keys],
  to,
  progress,
});
const restore = (cell: number, changes: number, writes = 0): Step => ({
  does: "restore",
  cell,
  changes,
  writes,
  areBroken: false,
});

const TWO: Answers = { calls: 2, pick: 0, fate: "waits" };
const answered = (answers = ALL): Step => ({ does: "answer", process: 1, answers });
const restarted: Step = { does: "restart", cell: A, areBroken: false };
const repeated: Step = { does: "repeat", process: 1, which: null, answers: ALL };

/** The command opened a bucket of a cell that it had not read in its new one: the first answer of that did not count yet. */
const COMMAND_WITHOUT_A_CELL: Plan = { cells: 2, steps: [move([0], B, { method: "all", after: 0, fate: "breaks" })] };

/** What a cell that went back was told of all buckets was what the one that they had really left said: commands took them for one database. */
const LIKE_ANOTHER_CELL: Plan = {
  cells: 3,
  steps: [move([0, 1], C), move([0, 1], B), restore(A, 1), restore(B, 2)],
};

/** A bucket that a cell which went back was told to be in another one was opened there without its rows, when that knew of no bucket any more. */
const OPENED_IN_AN_EMPTY_CELL: Plan = { cells: 2, steps: [receive(0), move([0], B), restore(A, 1), restore(B, 2, 1)] };

/** The slower one of two commands that an operator was told to run opened nothing, and told of success. */
const SLOWER_COMMAND: Plan = {
  cells: 3,
  steps: [
    move([0], C),
    restore(C, 2),
    { does: "settle" },
    move([0], A, { method: "open", after: 0, fate: "waits" }, 1),
    move([0], A),
    move([0], B),
    { does: "advance", mover: 1, progress: undefined },
  ],
};

/** A process that had not heard of a move took for true what its old cell said, which had gone back, as a call to the new one broke. */
const BROKEN_CALL: Plan = {
  cells: 2,
  steps: [
    move([0], B),
    receive(0),
    restore(A, 2),
    { ...receive(0), process: 1, answers: { calls: 3, pick: 0, fate: "breaks" } },
    repeated,
  ],
};

/** A process counted what the cell said that had gone back, but not the answer of the other one, which was restarted just then. */
const RESTARTED_TOO: Plan = {
  cells: 2,
  steps: [
    move([0], B),
    { does: "refresh", process: 1, answers: ALL },
    move([0], A),
    receive(0),
    restarted,
    restore(B, 2),
    { ...receive(0), process: 1, answers: { calls: 2, pick: 0, fate: "breaks" } },
    repeated,
  ],
};

/** What an earlier cell was told hid that the last one had copied a bucket to the next before it lost all: its rows were looked for in the earlier one. */
const COPIED_BEFORE_ALL_WAS_LOST: Plan = {
  cells: 3,
  steps: [
    move([0], B),
    receive(0),
    move([0], C),
    restore(A, 2),
    move([0], B, { method: "expect", after: 0, fate: "is done" }),
    restore(C, 1, 2),
  ],
};

/** Between two readings of all cells one went back, which a process read again: what it said counted without the others. */
const RESTARTED_BETWEEN: Plan = {
  cells: 2,
  steps: [
    move([0], B, { method: "leave", after: 0, fate: "is killed" }),
    { does: "elapse", ms: 11_000 },
    { does: "refresh", process: 1, answers: TWO },
    move([1], B),
    receive(1),
    restore(A, 2),
    answered(),
    repeated,
  ],
};

/** A cell was restarted before each reading of all, and went back during the last one, behind the answer of the other cell. */
const RESTARTED_AGAIN_AND_AGAIN: Plan = {
  cells: 2,
  steps: [
    { does: "refresh", process: 1, answers: { calls: 0, pick: 0, fate: "waits" } },
    restarted,
    answered(TWO),
    restarted,
    answered(TWO),
    restarted,
    answered(TWO),
    answered({ calls: 1, pick: 1, fate: "waits" }),
    move([0], B),
    receive(0),
    restore(A, 2),
    answered(),
    repeated,
  ],
};

/** A failure prints the plan, which makes the same run again, and what happened in it. */
async function breakNoRule(areRestored: boolean, examples: readonly Plan[]): Promise<void> {
  await fc.assert(
    fc.asyncProperty(plans(areRestored), async ({ cells, steps }) => {
      const world = new World(cells);
      const broken = await world.run(steps);
      if (broken.length > 0) throw new Error(["rules were broken:", ...broken, ...world.trace.lines].join("\n"));
    }),
    { ...settings(RUNS), examples: examples.map((plan) => [plan]) },
  );
}

describe("cells know each message once, keep the order of its key, and have each bucket in one place,", () => {
  test("whatever becomes of movers, processes and calls", async () => {
    await breakNoRule(false, [COMMAND_WITHOUT_A_CELL]);
  }, 120_000);

  test("whatever becomes of these while one cell after another goes back in time", async () => {
    await breakNoRule(true, [
      LIKE_ANOTHER_CELL,
      OPENED_IN_AN_EMPTY_CELL,
      SLOWER_COMMAND,
      BROKEN_CALL,
      RESTARTED_TOO,
      COPIED_BEFORE_ALL_WAS_LOST,
      RESTARTED_BETWEEN,
      RESTARTED_AGAIN_AND_AGAIN,
    ]);
  }, 120_000);
});

import { readFileSync } from "node:fs";
import { TransformError } from "../../src/model/errors.ts";
import type { Evaluation } from "../../src/ports/evaluator.ts";
import { eventually } from "../support/eventually.ts";

/** The time limit is generous: a machine that runs other tests beside these may not give a worker its turn for a while. */
export const evaluation = (
  expression: string,
  input: unknown = {},
  overrides: Partial<Evaluation> = {},
): Evaluation => ({
  lane: "test",
  expression,
  input: JSON.stringify(input),
  bindings: {},
  timeoutMs: 10_000,
  maxDepth: 100,
  ...overrides,
});

export const ENDLESS = "($f := function($x) { $f($x + 1) }; $f(1))";
/** Nothing in it asks for a limit: it compares each of 100,000 objects with each other. */
export const UNINTERRUPTIBLE = evaluation(
  "$distinct($)",
  Array.from({ length: 100_000 }, (_, n) => ({ n })),
  { timeoutMs: 200 },
);
export const QUICK = evaluation("n * 2", { n: 21 });

export async function failure(result: Promise<string>): Promise<{ readonly code: string; readonly message: string }> {
  const outcome = await result.catch((error: unknown) => error);
  if (!(outcome instanceof TransformError)) throw new Error(`no TransformError but ${String(outcome).slice(0, 300)}`);
  return { code: outcome.code, message: outcome.message };
}

/**
 * The longest turn of the event loop until a promise settles, in ms of this process' own processor time: what an evaluation inside
 * this process would take, and what a busy machine does not.
 */
export async function longestTurnDuring(promise: Promise<unknown>): Promise<number> {
  let longest = 0;
  let settled = false;
  const done = () => {
    settled = true;
  };
  promise.then(done, done);
  while (!settled) {
    const before = process.cpuUsage();
    await new Promise(setImmediate);
    const { user, system } = process.cpuUsage(before);
    longest = Math.max(longest, (user + system) / 1000);
  }
  return longest;
}

/** The process ids of this process's evaluation workers. */
export function workerIds(): number[] {
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, "utf8").trim().split(" ").filter(Boolean);
  return children.map(Number).filter((pid) => readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("evaluatorWorker"));
}

/** Waits until a worker has used processor time on top of what its start took, 0.6 s or what `idle` says: it evaluates. */
export function busyWorker(idle: ReadonlyMap<number, number> = new Map()): Promise<number> {
  return eventually(() => {
    const busy = workerIds().find((pid) => processorTicks(pid) > (idle.get(pid) ?? 60));
    if (busy === undefined) throw new Error("no worker is busy");
    return busy;
  });
}

/** Processor time that a process has used, in hundredths of a second. */
export function processorTicks(pid: number): number {
  const [, fields = ""] = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ");
  return Number(fields.split(" ")[11]);
}

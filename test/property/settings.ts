import { randomInt } from "node:crypto";
import type { Parameters } from "fast-check";

/**
 * How the property tests run.
 *
 * A failure prints the seed, the path and the smallest counterexample that was found. `SVC_TEST_SEED=<seed>` with the same file generates the same
 * values again and fails at the same one; with `SVC_TEST_PATH=<path>` and `-t <name of the test>` it goes straight to the counterexample. If that is a
 * list of commands, its end shows a `replayPath`: `SVC_TEST_REPLAY_PATH=<replayPath>` is needed as well.
 * `SVC_TEST_RUNS=10` does ten times the runs.
 */

/** The seed of this run. */
export const SEED = numberFrom("SVC_TEST_SEED") ?? randomInt(2 ** 31);

const FACTOR = numberFrom("SVC_TEST_RUNS") ?? 1;
const PATH = process.env.SVC_TEST_PATH;

/** Which commands of a counterexample ran; undefined unless one is replayed. */
export const REPLAY_PATH = process.env.SVC_TEST_REPLAY_PATH;

/** Runs of a property that costs microseconds. */
export const PURE_RUNS = 1000;

/** Runs of a property of a parser of foreign bytes. */
export const PARSER_RUNS = 100_000;

/** How many values to try, unless the environment asks for more. */
export const runsOf = (runs: number): number => runs * FACTOR;

/**
 * The parameters of a property.
 *
 * @param runs how many values to try, unless the environment asks for more
 */
export function settings(runs = PURE_RUNS): Parameters<unknown> {
  return { numRuns: runsOf(runs), seed: SEED, ...(PATH === undefined ? {} : { path: PATH, endOnFailure: true }) };
}

/**
 * Runs a check as long as it begins within a time. What begins later passes unchecked, so that a slow machine checks fewer
 * values. (fast-check's own `interruptAfterTimeLimit` leaves the run that is under way going behind the end of the test.)
 *
 * @param limitMs from the first run on
 */
export function beginningWithin<T>(limitMs: number, check: (value: T) => Promise<void>): (value: T) => Promise<void> {
  let endsAt: number | undefined;
  return async (value) => {
    endsAt ??= performance.now() + limitMs;
    if (performance.now() < endsAt) await check(value);
  };
}

function numberFrom(variable: string): number | undefined {
  const text = process.env[variable];
  if (text === undefined || text === "") return undefined;
  const number = Number(text);
  if (!Number.isInteger(number)) throw new Error(`${variable} is to be a whole number, found ${JSON.stringify(text)}`);
  return number;
}

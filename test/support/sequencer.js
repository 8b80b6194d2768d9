import { statSync } from "node:fs";

/**
 * The order of the test files. By size, as jest has it, the files of a few lines that run a shared suite or inject faults
 * would come last, and take longest: they begin early, spread among the others, and unit tests fill the end.
 */
const LONG = /\/test\/(?:conformance|faults|property)\//;
const SHORT = /\/test\/(?:unit|words)\//;

export default class Sequencer {
  sort(tests) {
    const files = tests
      .map((test) => ({ test, size: statSync(test.path).size }))
      .sort((a, b) => b.size - a.size)
      .map(({ test }) => test);
    const isLong = ({ path }) => LONG.test(path);
    const isShort = ({ path }) => SHORT.test(path);
    const spread = (own, until) => own.map((test, n) => ({ test, at: (until * n) / own.length }));
    const long = spread(files.filter(isLong), 0.7);
    const others = spread(
      files.filter((test) => !isLong(test) && !isShort(test)),
      1,
    );
    const order = [...long, ...others].sort((a, b) => a.at - b.at).map(({ test }) => test);
    return [...order, ...files.filter(isShort)];
  }

  allFailedTests(tests) {
    return tests;
  }

  cacheResults() {}
}

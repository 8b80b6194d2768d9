import { availableParallelism } from "node:os";

/** Jest over TypeScript as native ES modules; @swc/jest only strips types (TypeScript 7 has no compiler API to call). */
export default {
  testEnvironment: "<rootDir>/test/support/plainContext.js",
  extensionsToTreatAsEsm: [".ts"],
  transform: {
    "^.+\\.ts$": [
      "@swc/jest",
      { jsc: { target: "es2022", parser: { syntax: "typescript" } }, module: { type: "es6" } },
    ],
  },
  testMatch: ["<rootDir>/test/**/*.test.ts"],
  testPathIgnorePatterns: ["/node_modules/", ...(process.env.SVC_TEST_CITUS_URL ? [] : ["<rootDir>/test/citus/"])],
  modulePathIgnorePatterns: ["<rootDir>/dist/", "<rootDir>/.svc/"],
  globalSetup: "<rootDir>/test/support/globalSetup.ts",
  globalTeardown: "<rootDir>/test/support/globalTeardown.ts",
  testTimeout: 60000,
  // Most suites wait for a server most of the time.
  maxWorkers: availableParallelism() + 3,
  testSequencer: "<rootDir>/test/support/sequencer.js",
  reporters: ["default", "<rootDir>/test/support/closingLine.js"],
};

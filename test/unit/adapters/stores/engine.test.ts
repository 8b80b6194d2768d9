import { expect, test } from "@jest/globals";
import { engineProblem } from "../../../../src/adapters/stores/postgres/engine.ts";

test.each([
  [
    "CockroachDB CCL v24.1.18 (x86_64-pc-linux-gnu, built 2025/04/23 17:27:54, go1.22.8)",
    /^the database is CockroachDB, .*out of order/,
  ],
  [
    "PostgreSQL 11.2-YB-2.18.0.1-b0 on x86_64-pc-linux-gnu, compiled by clang, 64-bit",
    /^the database is YugabyteDB, .*out of order/,
  ],
  ["PostgreSQL 15.2-YB-2.25.0.0-b0 on aarch64-unknown-linux-gnu, compiled by clang, 64-bit", /YugabyteDB/],
  ["PostgreSQL 16", /^the database is Aurora DSQL, which locks no rows/],
])("%s is refused", (version, problem) => {
  expect(engineProblem(version)).toMatch(problem);
});

test.each([
  "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0) 12.2.0, 64-bit",
  "PostgreSQL 18beta1 on x86_64-pc-linux-gnu, compiled by gcc 13.3.0, 64-bit",
  "PostgreSQL 16.4 on aarch64-unknown-linux-gnu, compiled by aarch64-unknown-linux-gnu-gcc (GCC) 9.5.0, 64-bit",
  "PostgreSQL 15.2 (EnterpriseDB Advanced Server 15.2.0) on x86_64-pc-linux-gnu, compiled by gcc, 64-bit",
])("%s is not refused", (version) => {
  expect(engineProblem(version)).toBeUndefined();
});

import { describe, test } from "@jest/globals";
import { requiredKinds } from "./brokers/availability.ts";
import { findPgbouncer } from "./brokers/programs.ts";
import { HOW_TO_GET } from "./pgbouncer.ts";

/**
 * `describe` for tests that need PgBouncer. Where it is not installed the block is skipped and its name tells why; when
 * `SVC_TEST_REQUIRE` names `pgbouncer`, it fails instead.
 */
export function describeWithPgbouncer(name: string, block: () => void): void {
  if (findPgbouncer() !== undefined) {
    describe(name, block);
    return;
  }
  if (requiredKinds().has("pgbouncer")) {
    describe(name, () => {
      test("needs PgBouncer", () => {
        throw new Error(`${HOW_TO_GET}.`);
      });
    });
    return;
  }
  describe.skip(`${name} (no PgBouncer: run test/services/install.sh)`, block);
}

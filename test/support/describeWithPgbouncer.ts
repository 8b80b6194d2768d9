import { requiredKinds } from "./brokers/availability.ts";
import { findPgbouncer } from "./brokers/programs.ts";
import { describeWhere } from "./describeWhere.ts";
import { HOW_TO_GET } from "./pgbouncer.ts";

/**
 * `describe` for tests that need PgBouncer. If it is not installed, the block is skipped and its name gives the reason;
 * if `SVC_TEST_REQUIRE` names `pgbouncer`, it fails instead.
 */
export function describeWithPgbouncer(name: string, block: () => void): void {
  const need = {
    isThere: findPgbouncer() !== undefined,
    isRequired: requiredKinds().has("pgbouncer"),
    what: "PgBouncer",
    howToGet: `${HOW_TO_GET}.`,
    whySkipped: "no PgBouncer: run test/services/install.sh",
  };
  describeWhere(need, name, block);
}

import { describe, test } from "@jest/globals";
import { howToGet, isAvailable, requiredKinds } from "./availability.ts";
import type { BrokerKind } from "./types.ts";

/**
 * `describe` for tests that need brokers. Where a server of one of the kinds cannot be had, the block is skipped and its name tells
 * why; when `SVC_TEST_REQUIRE` names that kind, it fails instead.
 *
 * @param kinds what the tests of the block need; shared servers and servers of their own alike
 */
export function describeWith(kinds: readonly BrokerKind[], name: string, block: () => void): void {
  const missing = kinds.filter((kind) => !isAvailable(kind));
  if (missing.length === 0) {
    describe(name, block);
    return;
  }
  if (missing.some((kind) => requiredKinds().has(kind))) {
    describe(name, () => {
      test(`needs ${missing.join(" and ")}`, () => {
        throw new Error(howToGet(missing));
      });
    });
    return;
  }
  describe.skip(`${name} (no ${missing.join(", no ")}: run test/services/install.sh)`, block);
}

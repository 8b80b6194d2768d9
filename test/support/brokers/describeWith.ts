import { describeWhere } from "../describeWhere.ts";
import { howToGet, isAvailable, requiredKinds } from "./availability.ts";
import { whyUnusable } from "./programs.ts";
import type { BrokerKind } from "./types.ts";

/**
 * `describe` for tests that need brokers. If a server of one of the kinds is not available, the block is skipped and its name gives the reason; if
 * `SVC_TEST_REQUIRE` names that kind, it fails instead.
 *
 * @param kinds what the tests of the block need; shared servers and servers of their own alike
 */
export function describeWith(kinds: readonly BrokerKind[], name: string, block: () => void): void {
  const missing = kinds.filter((kind) => !isAvailable(kind));
  const need = {
    isThere: missing.length === 0,
    isRequired: missing.some((kind) => requiredKinds().has(kind)),
    what: missing.join(" and "),
    howToGet: howToGet(missing),
    whySkipped: `no ${missing.map(withReason).join(", no ")}: run test/services/install.sh`,
  };
  describeWhere(need, name, block);
}

function withReason(kind: BrokerKind): string {
  const reason = whyUnusable(kind);
  return reason === undefined ? kind : `${kind} (${reason})`;
}

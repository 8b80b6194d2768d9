import { DEPLOY_TOOLS, hasProgram } from "./programs.ts";
import type { BrokerKind } from "./types.ts";

/** The variables that name a running server for the tests, by kind. */
export const GIVEN = {
  rabbitmq: "SVC_TEST_RABBITMQ_URL",
  nats: "SVC_TEST_NATS_URL",
  kafka: "SVC_TEST_KAFKA_SERVERS",
} as const satisfies Readonly<Record<BrokerKind, string>>;

/** Everything that `SVC_TEST_REQUIRE` may name. PostgreSQL is always there: without it no test starts. */
const REQUIRABLE = ["postgres", "pgbouncer", "sqlserver", "cc", ...Object.keys(DEPLOY_TOOLS), ...Object.keys(GIVEN)];

/** The value of the variable that names a running server, if it has one. */
export function given(kind: BrokerKind): string | undefined {
  return process.env[GIVEN[kind]] || undefined;
}

/** Whether a server can be had, as far as that shows without starting one. */
export function isAvailable(kind: BrokerKind): boolean {
  return given(kind) !== undefined || hasProgram(kind);
}

/** What a developer can do about missing servers. */
export function howToGet(kinds: readonly BrokerKind[]): string {
  return (
    `no server of this kind can be had: ${kinds.join(", ")}. Run test/services/install.sh, which installs the server programs, ` +
    `or set ${kinds.map((kind) => GIVEN[kind]).join(", ")} to a running server.`
  );
}

/**
 * The kinds that must be there.
 *
 * @throws Error when `SVC_TEST_REQUIRE` names anything else
 */
export function requiredKinds(): ReadonlySet<string> {
  const names = (process.env.SVC_TEST_REQUIRE ?? "").split(",").map((name) => name.trim());
  const required = names.filter((name) => name !== "");
  const unknown = required.filter((name) => !REQUIRABLE.includes(name));
  if (unknown.length > 0) {
    throw new Error(`SVC_TEST_REQUIRE names ${unknown.join(", ")}; expected are names of: ${REQUIRABLE.join(", ")}`);
  }
  return new Set(required);
}

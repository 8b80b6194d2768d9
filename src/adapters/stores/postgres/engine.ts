import { ConfigError } from "../../../model/errors.ts";
import type { PostgresPool } from "./pool.ts";
import { type Statement, statement } from "./statement.ts";

const HAS_NO_NUMBERS =
  "whose transactions have no numbers, so that no snapshot shows which are open, and messages of a key would come out of order";

/** Engines that speak the protocol of PostgreSQL, and which promise fails there; by what `version()` answers. */
const OTHERS: readonly (readonly [answer: RegExp, problem: string])[] = [
  [/^CockroachDB /, `CockroachDB, ${HAS_NO_NUMBERS}`],
  [/^PostgreSQL \S*-YB-/, `YugabyteDB, ${HAS_NO_NUMBERS}`],
  // PostgreSQL adds its minor version and its platform.
  [/^PostgreSQL \d+$/, "Aurora DSQL, which locks no rows, so that each replica would deliver the same messages"],
];

/**
 * @param version what `version()` answers
 * @returns why the service does not run on this engine; undefined if it may
 */
export function engineProblem(version: string): string | undefined {
  const [, problem] = OTHERS.find(([answer]) => answer.test(version)) ?? [];
  return problem && `the database is ${problem}: use PostgreSQL, which Citus distributes`;
}

/** @throws ConfigError if the database only speaks the protocol of PostgreSQL, or is older than 13 */
export async function refuseOtherEngines(pool: PostgresPool): Promise<void> {
  const [{ version = "" } = {}] = (await pool.run(VERSION)) as { readonly version?: string }[];
  // Asked second: another engine may not have what the question needs.
  const message = engineProblem(version) ?? ((await hasSnapshots(pool)) ? undefined : `${version} ${LACKS_SNAPSHOTS}`);
  if (message !== undefined) throw new ConfigError([{ path: "database.url", message }]);
}

async function hasSnapshots(pool: PostgresPool): Promise<boolean> {
  const [row] = await pool.run(SNAPSHOTS);
  return row?.exists === true;
}

const LACKS_SNAPSHOTS =
  "has no function pg_current_snapshot(), which keeps messages of a key in order: use PostgreSQL 13 or newer";
const VERSION: Statement = statement("schema.version")("SELECT version() AS version");
const SNAPSHOTS: Statement = statement("schema.snapshots")(
  "SELECT to_regproc('pg_current_snapshot') IS NOT NULL AS exists",
);

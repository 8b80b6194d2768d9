import { ConfigError, type ConfigProblem } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";

/** What the database says about the table of the destinations, which may be missing. */
export interface FoundDestinationTable {
  /** Quoted, and qualified where the configuration names a schema. */
  readonly name: string;
  readonly isThere: boolean;
  /** Of SELECT, INSERT and UPDATE those that this user does not have. */
  readonly missingRights: readonly string[];
  /** What is wrong with its columns. */
  readonly problems: readonly ConfigProblem[];
  /** The statement that makes it. */
  readonly create: string;
}

export const DESTINATION_RIGHTS = ["SELECT", "INSERT", "UPDATE"] as const;

/**
 * Decides whether the table of the destinations can be used, and warns when it cannot.
 *
 * @param isRequired true where the configuration has something that needs it
 * @throws ConfigError with the statements that mend it: for columns always, for a missing table or right where it is required
 */
export function destinationsAvailable(found: FoundDestinationTable, isRequired: boolean, log: Log): boolean {
  if (found.isThere && found.problems.length > 0) throw new ConfigError(found.problems);
  const lack = lackOf(found);
  if (lack === undefined) return true;
  if (isRequired) {
    const message = `${lack.what}, and pauses, rate limits and circuit breakers need it: ${lack.advice}\n      ${lack.remedy}`;
    throw new ConfigError([{ path: "database.destinationTableName", message }]);
  }
  log.warn(
    { remedy: lack.remedy },
    `${lack.what}: destinations cannot be paused, and have no rate limit or circuit breaker, until it is there and the process is started again`,
  );
  return false;
}

function lackOf({ name, isThere, missingRights, create }: FoundDestinationTable) {
  if (!isThere) {
    return {
      what: `the table ${name} does not exist, or this user may not see it`,
      advice: "run `svc migrate`, set database.migrate: true, or make it with",
      remedy: create,
    };
  }
  if (missingRights.length === 0) return undefined;
  const rights = missingRights.join(", ");
  return {
    what: `the database user has no right to ${rights} on the table ${name}`,
    advice: "let the owner of the table run",
    remedy: `GRANT ${rights} ON ${name} TO <user>;`,
  };
}

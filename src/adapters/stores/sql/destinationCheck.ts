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
  const fault = destinationTableFault(found);
  if (fault === undefined) return true;
  if (isRequired) {
    const message = `${fault.what}, and pauses, rate limits and circuit breakers need it: ${fault.advice}\n      ${fault.remedy}`;
    throw new ConfigError([{ path: "database.destinationTableName", message }]);
  }
  log.warn(
    { remedy: fault.remedy },
    `${fault.what}: destinations cannot be paused, and have no rate limit or circuit breaker, until that is mended and the process is started again`,
  );
  return false;
}

/** What keeps the table from being used, and the statements that mend it; undefined for nothing. */
export function destinationTableFault({ name, isThere, missingRights, problems, create }: FoundDestinationTable) {
  if (!isThere) {
    return {
      what: `the table ${name} does not exist, or this user has no right on it at all (${grant(DESTINATION_RIGHTS, name)} mends that)`,
      advice: "run `svc migrate`, set database.migrate: true, or make it with",
      remedy: create,
    };
  }
  if (problems.length > 0) {
    // Each message ends with the statement, on lines of its own.
    const parts = problems.map(({ message }) => message.split(/\n\s*/));
    return {
      what: parts.map(([what = ""]) => what.replace(/: [^:]*$/, "")).join("; "),
      advice: "let the owner of the table run",
      remedy: parts.flatMap(([, ...statement]) => statement).join("\n"),
    };
  }
  if (missingRights.length === 0) return undefined;
  return {
    what: `the database user has no right to ${missingRights.join(", ")} on the table ${name}`,
    advice: "let the owner of the table run",
    remedy: grant(missingRights, name),
  };
}

function grant(rights: readonly string[], table: string): string {
  return `GRANT ${rights.join(", ")} ON ${table} TO <user>;`;
}

import { ConfigError } from "../../src/model/errors.ts";
import type { Store } from "../../src/ports/store.ts";

/** What the tests of the tables have in common for every database. */

/** The history of all bundled migrations. */
export const MIGRATIONS = [
  "inbox",
  "outbox",
  "finished-rows",
  "pull",
  "in-flight",
  "headers",
  "destinations",
  "history",
  "operators",
  "jobs",
  "journal",
  "redirect",
  "expiry",
  "put-off",
  "cell",
  "destination",
  "lists",
  "history-locks",
].map((name, n) => ({
  version: n + 1,
  name,
}));

/** What `migrate` answers on tables that have the migrations below this version. */
export const migrationsFrom = (version: number): readonly string[] =>
  MIGRATIONS.slice(version - 1).map((each) => `${each.version} ${each.name}`);

/** Runs `body` with a store and closes it. */
export async function withStore<T>(store: Store, body: (store: Store) => Promise<T>): Promise<T> {
  try {
    return await body(store);
  } finally {
    await store.close();
  }
}

/** The problems of a `ConfigError`, a line each. @throws any other error */
export function problemsOf(error: unknown): string {
  if (!(error instanceof ConfigError)) throw error;
  return error.problems.map((problem) => `${problem.path}: ${problem.message}`).join("\n");
}

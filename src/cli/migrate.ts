import { createStore } from "../../roles/database.ts";
import { renamedKeys } from "../config/checks/database.ts";
import { ConfigError } from "../model/errors.ts";
import { systemClock } from "../time/clock.ts";
import { prepare, type RunArguments } from "./run.ts";

/**
 * `svc migrate`: waits for the database, applies the bundled migrations also where `database.migrate` is false, checks the tables.
 *
 * @throws ConfigError with renamed tables or columns, which the bundled migrations do not know; StoreError when no database answers
 */
export async function migrate(args: Pick<RunArguments, "env" | "file">, print: (line: string) => void): Promise<void> {
  const { config, running } = prepare({ ...args, roles: [], once: false });
  const { database } = config;
  if (renamedKeys(database).length > 0) {
    const message = "the bundled migrations know only the default names: make the renamed tables and columns by hand";
    throw new ConfigError([{ path: "database", message }]);
  }
  const store = await createStore(config, systemClock, running.log);
  try {
    await store.waitUntilReady(database.startupTimeoutMs, new AbortController().signal);
    const applied = await store.schema.migrate();
    await store.schema.checkColumns();
    print(applied.length === 0 ? "the schema is up to date" : `migrations applied: ${applied.join(", ")}`);
  } finally {
    await store.close();
    running.flush();
  }
}

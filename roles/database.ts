import { endpointsOf } from "../src/adapters/stores/postgres/endpoints.ts";
import { createPostgresStore } from "../src/adapters/stores/postgres/index.ts";
import type { Config } from "../src/config/types.ts";
import { ConfigError } from "../src/model/errors.ts";
import type { Clock, Log } from "../src/ports/runtime.ts";
import type { Store } from "../src/ports/store.ts";

/**
 * The store that the configuration names; not connected yet.
 *
 * @throws ConfigError for a database that this version does not support
 */
export function createStore({ database }: Config, clock: Clock, log: Log): Store {
  const { target } = database;
  if (target.type !== "postgresql") {
    throw new ConfigError([{ path: "database.type", message: `"${target.type}" is not available in this version` }]);
  }
  return createPostgresStore(
    {
      endpoints: endpointsOf(target),
      database: target.database,
      username: database.username,
      password: database.password,
      primaryOnly: target.targetServerType === "primary",
      applicationName: target.applicationName ?? "svc",
      poolSize: database.poolSize,
      connectionTimeoutMs: database.connectionTimeoutMs,
      names: {
        schema: target.currentSchema,
        inboxTable: database.inboxTableName,
        outboxTable: database.outboxTableName,
        inbox: database.columnMapping.inbox,
        outbox: database.columnMapping.outbox,
      },
    },
    clock,
    log,
  );
}

/**
 * Waits for the database, applies the migrations where `database.migrate` is on (or `migrate` says so), and checks the tables.
 *
 * @param signal aborts when the process is told to stop meanwhile
 * @throws StoreError when no database answers in time, ConfigError when a column is missing
 */
export async function prepareStore(store: Store, config: Config, log: Log, signal: AbortSignal): Promise<void> {
  await store.waitUntilReady(config.database.startupTimeoutMs, signal);
  if (config.database.migrate) {
    const applied = await store.schema.migrate();
    if (applied.length > 0) log.info({ applied }, "migrations applied");
  }
  await store.schema.checkColumns();
}

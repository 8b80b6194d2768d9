import type { TableNames } from "../src/adapters/stores/sql/names.ts";
import type { Config } from "../src/config/types.ts";
import type { Clock, Log } from "../src/ports/runtime.ts";
import type { Store } from "../src/ports/store.ts";

export const APPLICATION_NAME = "svc";

/** The store that the configuration names; not connected yet. Only its own driver is loaded. */
export async function createStore({ database }: Config, clock: Clock, log: Log): Promise<Store> {
  const { target, username, password, poolSize, connectionTimeoutMs } = database;
  const common = {
    username,
    password,
    poolSize,
    connectionTimeoutMs,
    applicationName: target.applicationName ?? APPLICATION_NAME,
  };
  const names: Omit<TableNames, "schema"> = {
    inboxTable: database.inboxTableName,
    outboxTable: database.outboxTableName,
    inbox: database.columnMapping.inbox,
    outbox: database.columnMapping.outbox,
  };
  switch (target.type) {
    case "postgresql": {
      const { endpointsOf } = await import("../src/adapters/stores/postgres/endpoints.ts");
      const { createPostgresStore } = await import("../src/adapters/stores/postgres/index.ts");
      return createPostgresStore(
        {
          ...common,
          database: target.database,
          endpoints: endpointsOf(target),
          primaryOnly: target.targetServerType === "primary",
          names: { ...names, schema: target.currentSchema },
        },
        clock,
        log,
      );
    }
    case "sqlserver": {
      const { createSqlServerStore } = await import("../src/adapters/stores/sqlserver/index.ts");
      return createSqlServerStore(
        {
          ...common,
          database: target.database,
          host: target.host,
          port: target.port,
          instance: target.instance,
          encrypt: target.encrypt,
          trustServerCertificate: target.trustServerCertificate,
          hostNameInCertificate: target.hostNameInCertificate,
          loginTimeoutMs: target.loginTimeoutMs,
          names: { ...names, schema: undefined },
        },
        clock,
        log,
      );
    }
  }
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

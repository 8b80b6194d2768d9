import type { Log } from "../../../ports/runtime.ts";
import type { Store, TopicRouting } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { parkedStore, replayStore, retentionStore } from "../sql/finishedRows.ts";
import { SqlHistory } from "../sql/history.ts";
import { SqlInbox } from "../sql/inbox.ts";
import { messageStore } from "../sql/messages.ts";
import { quoteNames, type TableNames, withoutColumns } from "../sql/names.ts";
import { operationsStore } from "../sql/operations.ts";
import { SqlOutbox } from "../sql/outbox.ts";
import { SqlPull } from "../sql/pull.ts";
import { NO_LOW_WATER } from "../sql/rows.ts";
import { TableCheck } from "../sql/schema.ts";
import { type Facets, sqlStore } from "../sql/store.ts";
import { destinationStatements } from "./destinationsSql.ts";
import type { PoolOptions } from "./endpoints.ts";
import { parkedStatements, replayStatements, retentionStatements } from "./finishedSql.ts";
import { historyStatements } from "./historySql.ts";
import { messageStatements } from "./messagesSql.ts";
import { cellStatements, journalStatements, operationsStatements } from "./operationsSql.ts";
import { outboxStatements } from "./outboxSql.ts";
import { hasGivenUp, SqlServerPool } from "./pool.ts";
import { pullStatements } from "./pullSql.ts";
import { SqlServerReceipt } from "./receipt.ts";
import { SqlServerRelay } from "./relay.ts";
import { migrate, schemaDialect } from "./schema.ts";
import { statement } from "./statement.ts";

interface SqlServerStoreOptions extends PoolOptions {
  readonly names: TableNames;
  readonly routing?: TopicRouting | undefined;
}

/**
 * SQL Server 2017 or newer, Azure SQL Database and Azure SQL Managed Instance, with and without
 * READ_COMMITTED_SNAPSHOT. Call `waitUntilReady`, `schema.migrate` if wanted, and `schema.checkColumns` before the
 * roles start. Tables without a schema in `names` are in the user's default schema, which the migrations always use.
 */
export function createSqlServerStore(options: SqlServerStoreOptions, clock: Clock, log: Log): Store {
  const pool = new SqlServerPool(options, log);
  const all = quoteNames(options.names, (identifier) => `[${identifier}]`);
  const history = new SqlHistory(pool, historyStatements(all), hasGivenUp, clock, log);
  const check = new TableCheck(schemaDialect(pool, log), options.names, log);
  const facets = (): Facets => {
    const names = withoutColumns(all, check.missing);
    return {
      inbox: new SqlInbox(pool, new SqlServerReceipt(pool, names, log), new SqlServerRelay(pool, names), clock),
      // Finished rows leave the filtered indexes with their commit, unless an open transaction keeps row versions.
      outbox: new SqlOutbox(pool, outboxStatements(names), NO_LOW_WATER, history, clock, options.routing),
      pull: new SqlPull(pool, pullStatements(names)),
      messages: messageStore(pool, messageStatements(names), options.routing),
      operations: operationsStore(pool, operationsStatements(names)),
      parked: parkedStore(pool, parkedStatements(names, history.isAvailable)),
      replay: replayStore(pool, replayStatements(names, history.isAvailable), check.missing.outbox.destination),
      retention: retentionStore(pool, retentionStatements(names), history),
    };
  };
  const database = {
    pool,
    connections: pool,
    ping: statement("ping", { timeoutMs: 3000, use: "readiness" })("SELECT 1 AS answer;"),
    cell: cellStatements(all),
    destinations: destinationStatements(all),
    history,
    journal: journalStatements(all),
    facets: facets(),
    checkedFacets: async () => facets(),
    check,
    async migrate() {
      const session = new SqlServerPool({ ...options, poolSize: 1 }, log);
      return await migrate(session).finally(() => session.close());
    },
  };
  return sqlStore(database, clock, log);
}

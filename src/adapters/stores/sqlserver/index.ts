import type { Log } from "../../../ports/runtime.ts";
import type { Store } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { SqlHistory } from "../sql/history.ts";
import { SqlInbox } from "../sql/inbox.ts";
import { noLowWater } from "../sql/lowWaterMarks.ts";
import { quoteNames, type TableNames } from "../sql/names.ts";
import { SqlOutbox } from "../sql/outbox.ts";
import { SqlPull } from "../sql/pull.ts";
import type { TopicRoute } from "../sql/routing.ts";
import { TableCheck } from "../sql/schema.ts";
import { sqlStore } from "../sql/store.ts";
import { destinationStatements } from "./destinationsSql.ts";
import type { PoolOptions } from "./endpoints.ts";
import { replayStatements, retentionStatements } from "./finishedSql.ts";
import { historyStatements } from "./historySql.ts";
import { SqlServerInbox } from "./inbox.ts";
import { inboxStatements } from "./inboxSql.ts";
import { jobStatements } from "./jobsSql.ts";
import { journalStatements } from "./journalSql.ts";
import { messageStatements } from "./messagesSql.ts";
import { operationsStatements } from "./operationsSql.ts";
import { outboxStatements, parkedStatements } from "./outboxSql.ts";
import { SqlServerPool } from "./pool.ts";
import { pullStatements } from "./pullSql.ts";
import { migrate, schemaDialect } from "./schema.ts";
import { statement } from "./statement.ts";

interface SqlServerStoreOptions extends PoolOptions {
  readonly names: TableNames;
  /** In order of precedence. None by default. */
  readonly routes?: readonly TopicRoute[] | undefined;
}

/**
 * A store on SQL Server 2017 or newer, Azure SQL Database and Azure SQL Managed Instance, with and without
 * READ_COMMITTED_SNAPSHOT. Call `waitUntilReady`, `schema.migrate` where wanted, and `schema.checkColumns` before the
 * roles start. Tables without a schema in `names` are those of the user's default schema, where the migrations always
 * go.
 */
export function createSqlServerStore(options: SqlServerStoreOptions, clock: Clock, log: Log): Store {
  const pool = new SqlServerPool(options);
  const names = quoteNames(options.names, (identifier) => `[${identifier}]`);
  const history = new SqlHistory(pool, historyStatements(names), () => false, clock, log);
  const database = {
    pool,
    ping: statement("ping", {}, { timeoutMs: 3000 })("SELECT 1 AS answer;"),
    destinations: destinationStatements(names),
    history,
    journal: journalStatements(names),
    messages: messageStatements(names, options.routes),
    operations: operationsStatements(names),
    jobs: jobStatements(names),
    parked: parkedStatements(names),
    replay: replayStatements(names),
    retention: retentionStatements(names),
    facets: {
      inbox: new SqlInbox(new SqlServerInbox(pool, inboxStatements(names)), clock),
      // Finished rows leave the filtered indexes with their commit, unless an open transaction keeps row versions.
      outbox: new SqlOutbox(pool, outboxStatements(names, options.routes), noLowWater(clock), history, clock),
      pull: new SqlPull(pool, pullStatements(names), clock),
    },
    check: new TableCheck(schemaDialect(pool), options.names, log),
    migrate: () => migrate(pool),
  };
  return sqlStore(database, clock, log);
}

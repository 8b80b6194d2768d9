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
import { TableCheck } from "../sql/schema.ts";
import { type Facets, sqlStore } from "../sql/store.ts";
import { BUNDLED_TYPES, type ColumnTypes } from "./columns.ts";
import type { PoolOptions, PostgresConnections } from "./connections.ts";
import { destinationStatements } from "./destinationsSql.ts";
import { isLockTimeout } from "./errors.ts";
import { parkedStatements, replayStatements, retentionStatements } from "./finishedSql.ts";
import { historyStatements } from "./historySql.ts";
import { PostgresLowWater } from "./lowWater.ts";
import { messageStatements } from "./messagesSql.ts";
import { migrate } from "./migrations.ts";
import { cellStatements, journalStatements, operationsStatements } from "./operationsSql.ts";
import { outboxParts } from "./outboxParts.ts";
import { outboxStatements } from "./outboxSql.ts";
import { PostgresPool } from "./pool.ts";
import { pullStatements } from "./pullSql.ts";
import { PostgresReceipt, receiptStatements } from "./receipt.ts";
import { PostgresRelay, relayStatements } from "./relay.ts";
import { columnTypes, isCitus, schemaDialect } from "./schema.ts";
import { statement } from "./statement.ts";
import { PostgresWake, PostgresWatch } from "./wake.ts";

interface PostgresStoreOptions extends PoolOptions {
  readonly names: TableNames;
  readonly routing?: TopicRouting | undefined;
}

/**
 * PostgreSQL 13 or newer. Call `waitUntilReady`, `schema.migrate` if wanted, and `schema.checkColumns`, which also
 * reads the column types of an owner's table, before the roles start.
 *
 * @param connections shared with other stores of the database; by default its own
 */
export function createPostgresStore(
  options: PostgresStoreOptions,
  clock: Clock,
  log: Log,
  connections?: PostgresConnections,
): Store {
  const pool = new PostgresPool(options, log, connections);
  const all = quoteNames(options.names, (identifier) => `"${identifier}"`);
  const fixed = fixedStatements(all);
  const history = new SqlHistory(pool, fixed.history, isLockTimeout, clock, log);
  const check = new TableCheck(schemaDialect(pool), options.names, log);
  const watch = new PostgresWatch(all.outboxTable, clock, log);
  const facets = (types: ColumnTypes, mayBeCitus: boolean): Facets => {
    const names = withoutColumns(all, check.missing);
    const sql = tableStatements(names, types, mayBeCitus, history.isAvailable);
    const lowWater = new PostgresLowWater(pool, sql.outbox.mark, clock);
    const receipt = new PostgresReceipt(pool, sql.receipt);
    const relay = new PostgresRelay(pool, sql.relay, lowWater, clock);
    return {
      inbox: new SqlInbox(pool, receipt, relay, clock),
      outbox: new SqlOutbox(pool, sql.outbox, lowWater, history, clock, options.routing),
      pull: new SqlPull(pool, sql.pull),
      messages: messageStore(pool, sql.messages, options.routing),
      operations: operationsStore(pool, sql.operations),
      parked: parkedStore(pool, sql.parked),
      replay: replayStore(pool, sql.replay, check.missing.outbox.destination),
      retention: retentionStore(pool, sql.retention, history),
    };
  };
  const database = {
    pool,
    connections: pool.connections,
    ping: statement("ping", { timeoutMs: 3000, takesTurns: true, use: "readiness" })("SELECT 1"),
    ...fixed,
    history,
    facets: facets(BUNDLED_TYPES, true),
    checkedFacets: async () => {
      const onCitus = await isCitus(pool, log);
      watch.isShared = !onCitus;
      return facets(await columnTypes(pool, check, options.names), onCitus);
    },
    check,
    migrate: () => migrate(pool, options.names.schema, log),
    wake: new PostgresWake(pool, channelName(options.names), watch, clock, log),
    watch,
  };
  return sqlStore(database, clock, log);
}

/** Channels belong to a database: the tables' name separates two services in one database. At most 63 bytes. */
function channelName(names: TableNames): string {
  return `svc_${names.schema ?? ""}_${names.outboxTable}`.slice(0, 63);
}

/** The statements that do not depend on the columns of an owner's tables. @param names already quoted */
export function fixedStatements(names: TableNames) {
  return {
    cell: cellStatements(names),
    destinations: destinationStatements(names),
    history: historyStatements(names),
    journal: journalStatements(names),
  };
}

/**
 * @param names already quoted
 * @param mayBeCitus see `receiptStatements`
 * @param isNoting whether what operators change is added to the history
 */
export function tableStatements(names: TableNames, types: ColumnTypes, mayBeCitus: boolean, isNoting: boolean) {
  const outbox = outboxParts(names, types.outboxPayload);
  return {
    receipt: receiptStatements(names, types, mayBeCitus),
    /**
     * Receipts do not relay on Citus, which would run their statement in parts: its order rests on one snapshot. Nor
     * if columns change the texts of topic and headers: a pass of the relay would make others.
     */
    relay: relayStatements(names, types, mayBeCitus || !types.keepsTexts ? undefined : outbox),
    outbox: outboxStatements(names, outbox),
    pull: pullStatements(names, types.inboxPayload),
    messages: messageStatements(names),
    operations: operationsStatements(names),
    parked: parkedStatements(names, isNoting),
    replay: replayStatements(names, types, isNoting),
    retention: retentionStatements(names),
  };
}

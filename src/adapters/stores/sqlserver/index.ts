import type { DestinationStore } from "../../../ports/destinationStore.ts";
import type { PullStore } from "../../../ports/pullStore.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { InboxStore, OutboxStore, Store } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { SqlDestinations } from "../sql/destinations.ts";
import { SqlReplay, SqlRetention } from "../sql/finishedRows.ts";
import { SqlInbox } from "../sql/inbox.ts";
import { noLowWater } from "../sql/lowWaterMarks.ts";
import { quoteNames, type TableNames } from "../sql/names.ts";
import { SqlOutbox, SqlParked } from "../sql/outbox.ts";
import { SqlPull } from "../sql/pull.ts";
import { untilAnswered } from "../sql/readiness.ts";
import type { TopicRoute } from "../sql/routing.ts";
import { destinationStatements } from "./destinationsSql.ts";
import type { PoolOptions } from "./endpoints.ts";
import { replayStatements, retentionStatements } from "./finishedSql.ts";
import { SqlServerInbox } from "./inbox.ts";
import { inboxStatements } from "./inboxSql.ts";
import { outboxStatements, parkedStatements } from "./outboxSql.ts";
import { SqlServerPool } from "./pool.ts";
import { pullStatements } from "./pullSql.ts";
import { SqlServerSchema } from "./schema.ts";
import { type Statement, statement } from "./statement.ts";

interface SqlServerStoreOptions extends PoolOptions {
  readonly names: TableNames;
  /** In order of precedence; they tell where a row goes. None by default. */
  readonly routes?: readonly TopicRoute[] | undefined;
}

/**
 * A store on SQL Server 2017 or newer, Azure SQL Database and Azure SQL Managed Instance, with and without READ_COMMITTED_SNAPSHOT. Call
 * `waitUntilReady`, `schema.migrate` where wanted, and `schema.checkColumns` before the roles start. Tables without a schema in `names`
 * are those of the user's default schema; the migrations always go there.
 */
export function createSqlServerStore(options: SqlServerStoreOptions, clock: Clock, log: Log): Store {
  return new SqlServerStore(options, clock, log);
}

class SqlServerStore implements Store {
  readonly schema: Store["schema"];
  readonly inbox: InboxStore;
  readonly outbox: OutboxStore;
  readonly pull: PullStore;
  readonly destinations: DestinationStore;
  readonly parked: Store["parked"];
  readonly replay: Store["replay"];
  readonly retention: Store["retention"];
  readonly #pool: SqlServerPool;
  readonly #clock: Clock;
  readonly #log: Log;

  constructor(options: SqlServerStoreOptions, clock: Clock, log: Log) {
    this.#clock = clock;
    this.#log = log;
    this.#pool = new SqlServerPool(options);
    const pool = this.#pool;
    const names = quoteNames(options.names, (identifier) => `[${identifier}]`);
    this.inbox = new SqlInbox(new SqlServerInbox(pool, inboxStatements(names)), clock);
    // Finished rows leave the filtered indexes with their commit. Only while row versions are kept for a transaction that stays open do claims walk over the
    // entries of rows that have finished since.
    this.outbox = new SqlOutbox(pool, outboxStatements(names, options.routes), noLowWater(clock), clock);
    this.pull = new SqlPull(pool, pullStatements(names), clock);
    const destinations = new SqlDestinations(pool, destinationStatements(names));
    this.destinations = destinations;
    this.parked = new SqlParked(pool, parkedStatements(names));
    this.replay = new SqlReplay(pool, replayStatements(names));
    this.retention = new SqlRetention(pool, retentionStatements(names));
    const schema = new SqlServerSchema(this.#pool, options.names, log);
    this.schema = {
      migrate: () => schema.migrate(),
      destinationFault: () => schema.destinationFault(),
      checkColumns: async (tables, requireDestinations) => {
        destinations.isAvailable = await schema.checkTables(tables, requireDestinations);
      },
    };
  }

  async waitUntilReady(timeoutMs: number, signal: AbortSignal): Promise<void> {
    await untilAnswered(() => this.ping(), timeoutMs, signal, this.#clock, this.#log);
  }

  async ping(): Promise<void> {
    await this.#pool.run(PING);
  }

  poolUsage() {
    return this.#pool.usage();
  }

  /** SQL Server has no notification that costs a listener no connection: pollers of other processes come by at their intervals. */
  async onOutboxWake(): Promise<void> {}

  announceOutbox(): void {}

  async close(): Promise<void> {
    await this.#pool.close();
  }
}

const PING: Statement = statement("ping", {}, { timeoutMs: 3000 })("SELECT 1 AS answer;");

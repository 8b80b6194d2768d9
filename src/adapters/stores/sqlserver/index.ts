import type { DestinationStore } from "../../../ports/destinationStore.ts";
import type { PullStore } from "../../../ports/pullStore.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { InboxStore, OutboxStore, Store } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { quoteNames, type TableNames } from "../sql/names.ts";
import { untilAnswered } from "../sql/readiness.ts";
import type { TopicRoute } from "../sql/routing.ts";
import { SqlServerDestinations } from "./destinations.ts";
import { destinationStatements } from "./destinationsSql.ts";
import type { PoolOptions } from "./endpoints.ts";
import { SqlServerInbox } from "./inbox.ts";
import { inboxStatements } from "./inboxSql.ts";
import { SqlServerOutbox } from "./outbox.ts";
import { outboxStatements } from "./outboxSql.ts";
import { SqlServerParked } from "./parked.ts";
import { parkedStatements } from "./parkedSql.ts";
import { SqlServerPool } from "./pool.ts";
import { SqlServerPull } from "./pull.ts";
import { pullStatements } from "./pullSql.ts";
import { SqlServerReplay } from "./replay.ts";
import { replayStatements } from "./replaySql.ts";
import { sqlServerRetention } from "./retention.ts";
import { retentionStatements } from "./retentionSql.ts";
import { SqlServerSchema } from "./schema.ts";
import type { Statement } from "./statement.ts";

export interface SqlServerStoreOptions extends PoolOptions {
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
    const quoted = quoteNames(options.names, (identifier) => `[${identifier}]`);
    this.inbox = new SqlServerInbox(this.#pool, inboxStatements(quoted), clock);
    this.outbox = new SqlServerOutbox(this.#pool, outboxStatements(quoted, options.routes), clock);
    this.pull = new SqlServerPull(this.#pool, pullStatements(quoted), clock);
    const destinations = new SqlServerDestinations(this.#pool, destinationStatements(quoted));
    this.destinations = destinations;
    this.parked = new SqlServerParked(this.#pool, parkedStatements(quoted));
    this.replay = new SqlServerReplay(this.#pool, replayStatements(quoted));
    this.retention = sqlServerRetention(this.#pool, retentionStatements(quoted));
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

const PING: Statement = { name: "ping", text: "SELECT 1 AS answer;", parameters: {}, timeoutMs: 3000 };

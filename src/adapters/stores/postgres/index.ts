import type { DestinationStore } from "../../../ports/destinationStore.ts";
import type { PullStore } from "../../../ports/pullStore.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { InboxStore, OutboxStore, Store } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { SqlDestinations } from "../sql/destinations.ts";
import { SqlReplay, SqlRetention } from "../sql/finishedRows.ts";
import { SqlInbox } from "../sql/inbox.ts";
import { quoteNames, type TableNames } from "../sql/names.ts";
import { SqlOutbox, SqlParked } from "../sql/outbox.ts";
import { SqlPull } from "../sql/pull.ts";
import { untilAnswered } from "../sql/readiness.ts";
import type { TopicRoute } from "../sql/routing.ts";
import { BUNDLED_TYPES, type ColumnTypes } from "./columns.ts";
import { destinationStatements } from "./destinationsSql.ts";
import { replayStatements, retentionStatements } from "./finishedSql.ts";
import { PostgresInbox } from "./inbox.ts";
import { inboxStatements } from "./inboxSql.ts";
import { PostgresLowWater } from "./lowWater.ts";
import { outboxStatements, parkedStatements } from "./outboxSql.ts";
import { type PoolOptions, PostgresPool } from "./pool.ts";
import { pullStatements } from "./pullSql.ts";
import { PostgresSchema } from "./schema.ts";
import { statement } from "./statement.ts";
import { PostgresWake } from "./wake.ts";

interface PostgresStoreOptions extends PoolOptions {
  readonly names: TableNames;
  /** In order of precedence; they tell where a row goes. None by default. */
  readonly routes?: readonly TopicRoute[] | undefined;
}

/**
 * A store on PostgreSQL 13 or newer. Call `waitUntilReady`, `schema.migrate` where wanted, and `schema.checkColumns` before the
 * roles start: the check also reads the column types, which an owner's table may have chosen differently.
 */
export function createPostgresStore(options: PostgresStoreOptions, clock: Clock, log: Log): Store {
  return new PostgresStore(options, clock, log);
}

class PostgresStore implements Store {
  readonly schema: Store["schema"];
  inbox: InboxStore;
  outbox: OutboxStore;
  pull: PullStore;
  readonly destinations: DestinationStore;
  readonly parked: Store["parked"];
  readonly replay: Store["replay"];
  readonly retention: Store["retention"];
  readonly #pool: PostgresPool;
  readonly #wake: PostgresWake;
  readonly #clock: Clock;
  readonly #log: Log;

  constructor(options: PostgresStoreOptions, clock: Clock, log: Log) {
    this.#clock = clock;
    this.#log = log;
    const pool = new PostgresPool(options);
    this.#pool = pool;
    this.#wake = new PostgresWake(pool, channelName(options.names), clock, log);
    const names = quoteNames(options.names, (identifier) => `"${identifier}"`);
    const facets = (types: ColumnTypes) => {
      const inboxSql = inboxStatements(names, types);
      const outboxSql = outboxStatements(names, types.outboxPayload, options.routes);
      const inbox = new PostgresInbox(pool, inboxSql, new PostgresLowWater(pool, inboxSql.mark, clock));
      return {
        inbox: new SqlInbox(inbox, clock),
        outbox: new SqlOutbox(pool, outboxSql, new PostgresLowWater(pool, outboxSql.mark, clock), clock),
        pull: new SqlPull(pool, pullStatements(names, types.inboxPayload), clock),
      };
    };
    ({ inbox: this.inbox, outbox: this.outbox, pull: this.pull } = facets(BUNDLED_TYPES));
    const destinations = new SqlDestinations(pool, destinationStatements(names));
    this.destinations = destinations;
    this.parked = new SqlParked(pool, parkedStatements(names));
    this.replay = new SqlReplay(pool, replayStatements(names));
    this.retention = new SqlRetention(pool, retentionStatements(names));
    const schema = new PostgresSchema(pool, options.names, log);
    this.schema = {
      migrate: () => schema.migrate(),
      destinationFault: () => schema.destinationFault(),
      checkColumns: async (tables, requireDestinations) => {
        destinations.isAvailable = await schema.checkTables(tables, requireDestinations);
        ({ inbox: this.inbox, outbox: this.outbox, pull: this.pull } = facets(await schema.columnTypes()));
      },
    };
  }

  async waitUntilReady(timeoutMs: number, signal: AbortSignal): Promise<void> {
    await untilAnswered(() => this.ping(), timeoutMs, signal, this.#clock, this.#log);
  }

  async ping(): Promise<void> {
    await this.#pool.run(statement("ping", [], { timeoutMs: 3000 })("SELECT 1"));
  }

  poolUsage() {
    return this.#pool.usage();
  }

  async onOutboxWake(listener: () => void): Promise<void> {
    await this.#wake.listen(listener);
  }

  announceOutbox(): void {
    this.#wake.announce();
  }

  async close(): Promise<void> {
    await this.#wake.close();
    await this.#pool.close();
  }
}

/** Channels belong to a database: the tables' name keeps two services in one database apart. At most 63 bytes. */
function channelName(names: TableNames): string {
  return `svc_${names.schema ?? ""}_${names.outboxTable}`.slice(0, 63);
}

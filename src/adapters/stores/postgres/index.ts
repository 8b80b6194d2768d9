import type { DestinationStore } from "../../../ports/destinationStore.ts";
import type { PullStore } from "../../../ports/pullStore.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { InboxStore, OutboxStore, Store } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { quoteNames, type TableNames } from "../sql/names.ts";
import { untilAnswered } from "../sql/readiness.ts";
import type { TopicRoute } from "../sql/routing.ts";
import { PostgresDestinations } from "./destinations.ts";
import { destinationStatements } from "./destinationsSql.ts";
import { PostgresInbox } from "./inbox.ts";
import { inboxStatements } from "./inboxSql.ts";
import { Looks } from "./looks.ts";
import { PostgresOutbox } from "./outbox.ts";
import { outboxStatements } from "./outboxSql.ts";
import { PostgresParked } from "./parked.ts";
import { parkedStatements } from "./parkedSql.ts";
import { type PoolOptions, PostgresPool } from "./pool.ts";
import { PostgresPull } from "./pull.ts";
import { pullStatements } from "./pullSql.ts";
import { PostgresReplay } from "./replay.ts";
import { replayStatements } from "./replaySql.ts";
import { postgresRetention } from "./retention.ts";
import { retentionStatements } from "./retentionSql.ts";
import { type ColumnTypes, PostgresSchema } from "./schema.ts";
import { PostgresWake } from "./wake.ts";

export interface PostgresStoreOptions extends PoolOptions {
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
    this.#pool = new PostgresPool(options);
    this.#wake = new PostgresWake(this.#pool, channelName(options.names), clock, log);
    const schema = new PostgresSchema(this.#pool, options.names, log);
    const quoted = quoteNames(options.names, (identifier) => `"${identifier}"`);
    const looks = new Looks(this.#pool, clock);
    const facets = (types: ColumnTypes) => ({
      inbox: new PostgresInbox(this.#pool, inboxStatements(quoted, types), looks, clock),
      outbox: new PostgresOutbox(
        this.#pool,
        outboxStatements(quoted, types.outboxPayload, options.routes),
        looks,
        clock,
      ),
      pull: new PostgresPull(this.#pool, pullStatements(quoted, types.inboxPayload), clock),
    });
    ({ inbox: this.inbox, outbox: this.outbox, pull: this.pull } = facets(BUNDLED_TYPES));
    const destinations = new PostgresDestinations(this.#pool, destinationStatements(quoted));
    this.destinations = destinations;
    this.parked = new PostgresParked(this.#pool, parkedStatements(quoted));
    this.replay = new PostgresReplay(this.#pool, replayStatements(quoted));
    this.retention = postgresRetention(this.#pool, retentionStatements(quoted));
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
    await this.#pool.run({ name: "ping", text: "SELECT 1", timeoutMs: 3000 });
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

const BUNDLED_TYPES: ColumnTypes = {
  inboxPayload: "text",
  inboxHeaders: "jsonb",
  outboxTopic: "text",
  outboxKey: "text",
  outboxPayload: "text",
  outboxHeaders: "jsonb",
};

/** Channels belong to a database: the tables' name keeps two services in one database apart. At most 63 bytes. */
function channelName(names: TableNames): string {
  return `svc_${names.schema ?? ""}_${names.outboxTable}`.slice(0, 63);
}

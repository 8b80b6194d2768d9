import type pg from "pg";
import { errorText } from "../../../model/errors.ts";
import { SLOT_STATUSES, type SlotStatus } from "../../../ports/capture.ts";
import type { Metrics } from "../../../ports/metrics.ts";
import type { Log } from "../../../ports/runtime.ts";
import { connect, disconnect, type ServerAddress } from "./connection.ts";
import {
  foreignSlot,
  insertsNotPublished,
  isStandby,
  lostSlot,
  Misconfigured,
  type Names,
  noPublication,
  noTable,
  notPublished,
  QUERY_CANCELED,
  slotFault,
  slotNotMade,
  sqlState,
  walLevelTooLow,
} from "./faults.ts";

/** The state of the slot on the server. */
interface Slot {
  readonly status: SlotStatus | null;
  /** Why the server gave it up; null when it has not. */
  readonly invalidation: string | null;
  /** Log that the server keeps for it, and log that is not confirmed yet, in bytes. */
  readonly retained: number;
  readonly unconfirmed: number;
}

/** What the check of the server found. */
interface Table {
  /** Rows of a partitioned table are logged under the names of its partitions, which may come and go. */
  readonly partitioned: boolean;
}

/** Checks all that can be wrong before the log is read. @throws Misconfigured with what to do */
export async function checkServer(client: pg.Client, names: Names, host: string): Promise<Table> {
  const [server] = (await client.query(SERVER, [names.schema, names.table, names.publication])).rows;
  if (server.standby) throw isStandby(host);
  if (server.wal_level !== "logical") throw walLevelTooLow(server.wal_level);
  if (server.kind === null) throw noTable(names);
  const partitioned = server.kind === "p";
  if (server.publishes === null) {
    // Lists of columns came with version 15, and not for partitions that publish by themselves.
    throw noPublication(names, Number(server.version) >= 150_000 && !partitioned);
  }
  if (!server.published) throw notPublished(names);
  if (!server.publishes) throw insertsNotPublished(names);
  return { partitioned };
}

const SERVER = `
WITH t AS (
  SELECT c.oid, c.relkind FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p')
), parts AS (
  SELECT oid FROM t UNION SELECT p.relid FROM t, pg_catalog.pg_partition_tree(t.oid) p
)
SELECT current_setting('wal_level') AS wal_level, pg_catalog.pg_is_in_recovery() AS standby,
       current_setting('server_version_num') AS version,
       (SELECT relkind FROM t) AS kind,
       (SELECT pubinsert FROM pg_catalog.pg_publication WHERE pubname = $3) AS publishes,
       EXISTS (SELECT FROM pg_catalog.pg_publication_tables pt
               JOIN pg_catalog.pg_namespace n ON n.nspname = pt.schemaname
               JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = pt.tablename
               JOIN parts ON parts.oid = c.oid
               WHERE pt.pubname = $3) AS published`;

/**
 * The slot as it is; created if it does not exist.
 *
 * @param known whether the capture has used the slot before: a missing one is then a warning
 * @throws Error with what to do when it is not ours, or cannot be made
 */
export async function prepareSlot(client: pg.Client, names: Names, known: boolean, log: Log): Promise<Slot> {
  const found = await readSlot(client, names);
  if (found !== undefined) return found;
  await makeSlot(client, names);
  const message = "replication slot made: the server keeps its log for it from now on";
  if (known) {
    log.warn(
      { slot: names.slot },
      `the replication slot was gone (dropped, or left behind by a failover). ${message}; rows inserted meanwhile are found by polling`,
    );
  } else {
    log.info({ slot: names.slot }, message);
  }
  const made = await readSlot(client, names);
  if (made === undefined) throw new Error(`the replication slot ${names.slot} was dropped right after it was made`);
  return made;
}

/** @returns undefined when there is no such slot @throws Misconfigured when it is not ours */
async function readSlot(client: pg.Client, names: Names): Promise<Slot | undefined> {
  const [row] = (await client.query(SLOT, [names.slot])).rows;
  if (row === undefined) return undefined;
  const kind = `${row.slot_type} slot with ${row.plugin ?? "no plugin"} in ${row.database ?? "no database"}`;
  const expected = `logical slot with pgoutput in ${row.here}`;
  if (kind !== expected) throw foreignSlot(names, `a ${kind}`, `a ${expected}`);
  const details = row.slot as { readonly invalidation_reason?: string | null };
  return {
    status: SLOT_STATUSES.find((status) => status === row.wal_status) ?? null,
    invalidation: details.invalidation_reason ?? null,
    retained: Math.max(0, Number(row.retained ?? 0)),
    unconfirmed: Math.max(0, Number(row.unconfirmed ?? 0)),
  };
}

/** `invalidation_reason` came with version 17. */
const SLOT = `
SELECT s.slot_type, s.plugin, s.database, current_database() AS here, s.wal_status, to_jsonb(s) AS slot,
       pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), s.restart_lsn) AS retained,
       pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), s.confirmed_flush_lsn) AS unconfirmed
FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = $1`;

/** @throws Misconfigured when the server no longer has the log that the slot needs */
export function checkKept(slot: Slot, names: Names): void {
  if (slot.status === "lost") throw lostSlot(names, slot.invalidation);
}

async function makeSlot(client: pg.Client, names: Names): Promise<void> {
  try {
    await client.query("SELECT pg_catalog.pg_create_logical_replication_slot($1, 'pgoutput')", [names.slot]);
  } catch (error) {
    if (sqlState(error) !== QUERY_CANCELED) throw slotFault(error, names);
    const [oldest] = (await client.query(OLDEST_TRANSACTION)).rows;
    throw slotNotMade(names, oldest);
  }
}

const OLDEST_TRANSACTION = `
SELECT pid, extract(epoch FROM now() - xact_start)::int AS seconds FROM pg_catalog.pg_stat_activity
WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1`;

interface SlotWatchOptions {
  readonly server: ServerAddress;
  readonly names: Names;
  readonly metrics: Pick<Metrics, "replicationSlotLag" | "replicationSlotStatus">;
  readonly log: Log;
  /** Called when the slot, publication or server no longer fits, which a stream may not notice. */
  readonly onFault: (fault: Misconfigured) => void;
  /** Hangs up when it aborts. */
  readonly signal: AbortSignal;
}

/** Checks the slot periodically, over a second connection: a slot that falls behind fills the server's disk. */
export class SlotWatch {
  readonly #options: SlotWatchOptions;
  #client: pg.Client | undefined;
  #timer: NodeJS.Timeout | undefined;
  #checking: Promise<void> = Promise.resolve();
  #last: SlotStatus | null = null;
  #closed = false;

  constructor(options: SlotWatchOptions) {
    this.#options = options;
  }

  /** The connection, which is open until `close`. @throws Error with what to do */
  async open(): Promise<pg.Client> {
    this.#client ??= await connect(this.#options.server, "queries", this.#options.signal);
    return this.#client;
  }

  /** Begins the checks. */
  start(): void {
    this.#timer = setInterval(() => {
      this.#checking = this.#checking.then(() => this.#check());
    }, CHECK_INTERVAL_MS);
  }

  /** Takes what is known of the slot into the metrics, and warns of log that is about to go. */
  note(slot: Slot): void {
    const { metrics, log, names } = this.#options;
    metrics.replicationSlotLag(slot.retained, slot.unconfirmed);
    if (slot.status === null) return;
    metrics.replicationSlotStatus(slot.status);
    if (slot.status === "unreserved" && this.#last !== "unreserved") {
      log.warn(
        { slot: names.slot, retainedBytes: slot.retained },
        "the replication slot is past max_slot_wal_keep_size: the next checkpoint may take the log that it needs",
      );
    }
    this.#last = slot.status;
  }

  /**
   * Takes the slot of an earlier run into the metrics, where there is one: it retains log while nothing is captured.
   */
  async noteLeft(): Promise<void> {
    try {
      const slot = await readSlot(await this.open(), this.#options.names);
      if (slot !== undefined) this.note(slot);
    } catch (error) {
      this.#options.log.debug({ reason: errorText(error) }, "replication slot not read");
    }
  }

  /** Ends the checks and the connection. */
  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    if (this.#client !== undefined) await disconnect(this.#client);
    await this.#checking;
  }

  async #check(): Promise<void> {
    if (this.#closed) return;
    const { server, names, onFault, log } = this.#options;
    try {
      const client = await this.open();
      await checkServer(client, names, server.endpoints[0]?.host ?? "");
      const slot = await readSlot(client, names);
      if (slot !== undefined) this.note(slot);
    } catch (error) {
      if (error instanceof Misconfigured) return onFault(error);
      // The stream has its own watchdog; without a check only the metrics are stale.
      log.debug({ reason: errorText(error) }, "the replication slot could not be checked");
      const broken = this.#client;
      this.#client = undefined;
      if (broken !== undefined) await disconnect(broken);
    }
  }
}

const CHECK_INTERVAL_MS = 10_000;

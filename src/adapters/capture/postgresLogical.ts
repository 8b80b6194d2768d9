import type { Socket } from "node:net";
import pg from "pg";
import { errorText } from "../../model/errors.ts";
import type { Secret } from "../../model/secret.ts";
import { type ChangeLog, type LogEvents, SLOT_STATUSES } from "../../ports/capture.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { atMost, linked, sleep } from "../../time/wait.ts";
import type { Endpoint } from "../stores/postgres/connections.ts";

export interface PostgresLogicalOptions {
  readonly server: {
    /** Ways to one server, with or without TLS, in the order in which they are tried. */
    readonly endpoints: readonly Endpoint[];
    readonly database: string;
    readonly username: string;
    readonly password: Secret;
    readonly applicationName: string;
    /** Longest statement in ms (default 30,000): making the slot waits for every open transaction. */
    readonly statementTimeoutMs?: number;
  };
  readonly names: {
    readonly schema: string;
    readonly table: string;
    /** Column of the table that is enough to publish. */
    readonly idColumn: string;
    readonly publication: string;
    readonly slot: string;
  };
  readonly clock: Clock;
  readonly metrics: Pick<Metrics, "replicationSlotLag" | "replicationSlotStatus">;
  readonly log: Log;
}

type Server = PostgresLogicalOptions["server"];
type Names = PostgresLogicalOptions["names"];

const CONNECT_TIMEOUT_MS = 10_000;
const STATEMENT_TIMEOUT_MS = 30_000;
/** The server ends a statement that takes too long; the client leaves a server that hangs a little later. */
const HANG_MARGIN_MS = 5000;
const GOODBYE_TIMEOUT_MS = 1000;
const CHECK_INTERVAL_MS = 10_000;
const STATUS_INTERVAL_MS = 1000;
const MOST_UNANSWERED = 15;

/**
 * Follows inserts into the outbox by logical replication with `pgoutput` (spec, "outbox.capture"). The slot knows where
 * to begin. A second connection checks it: a slot that falls behind fills the server's disk, and a stream does not
 * notice that its publication is gone.
 */
export function postgresLogical(options: PostgresLogicalOptions): ChangeLog {
  const { server } = options;
  return {
    async follow(from, events, signal) {
      using ending = linked(signal);
      const clients: pg.Client[] = [];
      const open = async (limits: object) => {
        const client = await connect(server, limits, ending.signal);
        clients.push(client);
        return client;
      };
      try {
        const timeoutMs = server.statementTimeoutMs ?? STATEMENT_TIMEOUT_MS;
        const observer = await open({ statement_timeout: timeoutMs, query_timeout: timeoutMs + HANG_MARGIN_MS });
        await prepareSlot(observer, options, from !== null);
        // Not in the driver's types. `database` is logical replication.
        const client = await open({ replication: "database" });
        await Promise.race([streamChanges(client, options, events), watchSlot(observer, options, ending.signal)]);
      } catch (error) {
        if (!signal.aborted) throw error;
      } finally {
        ending.abort();
        await Promise.all(clients.map((client) => atMost(GOODBYE_TIMEOUT_MS, client.end())));
      }
    },
  };
}

/** The driver's undocumented parts for replication. */
interface ReplicationWire {
  on(event: "copyData", listener: (message: { readonly chunk: Buffer }) => void): void;
  once(event: "replicationStart", listener: () => void): void;
  sendCopyFromChunk(chunk: Buffer): void;
  readonly stream: Pick<Socket, "destroy">;
}

function wireOf(client: pg.Client): ReplicationWire {
  return (client as unknown as { connection: ReplicationWire }).connection;
}

/** @param signal disconnects when it aborts, now or later @throws Error with what to do */
async function connect(server: Server, limits: object, signal: AbortSignal): Promise<pg.Client> {
  let failure: unknown;
  for (const { host, port, tls } of server.endpoints) {
    const client = new pg.Client({
      host,
      port,
      ssl: tls,
      user: server.username,
      password: server.password.reveal(),
      database: server.database,
      application_name: server.applicationName,
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      keepAlive: true,
      ...limits,
    });
    // A connection that breaks rejects what runs on it; unheard, the event would end the process.
    client.on("error", () => {});
    signal.addEventListener("abort", () => wireOf(client).stream.destroy());
    try {
      signal.throwIfAborted();
      await client.connect();
      return client;
    } catch (error) {
      failure = error;
      await atMost(GOODBYE_TIMEOUT_MS, client.end());
      wireOf(client).stream.destroy();
    }
  }
  const [endpoint] = server.endpoints;
  throw fault(`cannot connect to ${endpoint?.host}:${endpoint?.port} for capture`, failure, {
    [NO_RIGHT]: grantReplication(server),
    [TOO_MANY_CONNECTIONS]: "Raise max_wal_senders (or max_connections) of the server",
    "": "Capture needs a direct connection to the server, not through a pooler",
  });
}

/** Checks all that can be wrong before the log is read. @throws Error with what to do */
async function checkServer(client: pg.Client, { server, names }: PostgresLogicalOptions): Promise<void> {
  const [found] = (await client.query(SERVER, [names.schema, names.table, names.publication])).rows;
  const table = `${pg.escapeIdentifier(names.schema)}.${pg.escapeIdentifier(names.table)}`;
  const publication = pg.escapeIdentifier(names.publication);
  if (found.standby) {
    throw new Error(
      `${server.endpoints[0]?.host} is a standby: capture needs the primary. Point outbox.capture.connection.hostname to it, or to a name that follows it`,
    );
  }
  if (found.wal_level !== "logical") {
    throw new Error(
      `wal_level of the server is ${found.wal_level}, and logical replication needs logical: run ALTER SYSTEM SET wal_level = 'logical' and restart the server (a managed one has a parameter for it, such as rds.logical_replication)`,
    );
  }
  if (found.kind === null) {
    throw new Error(
      `there is no table ${table}: outbox.capture.schema must be the schema of the outbox table (database.outboxTableName)`,
    );
  }
  if (found.publishes === null) {
    // The id alone, so that the server sends no payload. Column lists came with version 15, and not for partitions.
    const hasList = Number(found.version) >= 150_000 && found.kind !== "p";
    const columns = hasList ? ` (${pg.escapeIdentifier(names.idColumn)})` : "";
    throw new Error(
      `there is no publication ${names.publication}, and the service makes none. As the owner of the table run: CREATE PUBLICATION ${publication} FOR TABLE ${table}${columns} WITH (publish = 'insert')`,
    );
  }
  if (!found.published) {
    throw new Error(
      `the publication ${names.publication} does not hold the table ${table}. Run: ALTER PUBLICATION ${publication} ADD TABLE ${table}`,
    );
  }
  if (!found.publishes) {
    throw new Error(
      `the publication ${names.publication} does not publish inserts. Run: ALTER PUBLICATION ${publication} SET (publish = 'insert')`,
    );
  }
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
 * Checks the server and makes the slot if it does not exist.
 *
 * @param known whether the capture has used the slot before: a missing one is then a warning
 * @throws Error with what to do
 */
async function prepareSlot(client: pg.Client, options: PostgresLogicalOptions, known: boolean): Promise<void> {
  const { slot } = options.names;
  // The slot of an earlier run retains log also while the server cannot be captured from.
  const found = await noteSlot(client, options);
  await checkServer(client, options);
  if (found === "lost") {
    throw new Error(
      `the replication slot ${slot} is lost: the server no longer has the log that it needs. Outbox rows are still found by polling. ${dropSlot(slot)}`,
    );
  }
  if (found !== undefined) return;
  await makeSlot(client, options);
  await noteSlot(client, options);
  if (known) {
    options.log.warn(
      { slot },
      "the replication slot was gone (dropped, or left behind by a failover) and was made again: rows inserted meanwhile are found by polling",
    );
  } else {
    options.log.info({ slot }, "replication slot made: the server keeps its log for it from now on");
  }
}

async function makeSlot(client: pg.Client, { server, names }: PostgresLogicalOptions): Promise<void> {
  try {
    await client.query("SELECT pg_catalog.pg_create_logical_replication_slot($1, 'pgoutput')", [names.slot]);
  } catch (error) {
    if (sqlState(error) !== QUERY_CANCELED) throw slotFault(error, names, server);
    const [oldest] = (await client.query(OLDEST_TRANSACTION)).rows;
    const who =
      oldest === undefined ? "" : `; the oldest is open for ${oldest.seconds} s in the server process ${oldest.pid}`;
    throw new Error(
      `the replication slot ${names.slot} is not made yet: the server waits for the transactions that were open before${who}. End it, or wait`,
    );
  }
}

const OLDEST_TRANSACTION = `
SELECT pid, extract(epoch FROM now() - xact_start)::int AS seconds FROM pg_catalog.pg_stat_activity
WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1`;

/** Takes the slot into the metrics. @returns its `wal_status`; undefined when there is no slot */
async function noteSlot(client: pg.Client, { names, metrics }: PostgresLogicalOptions): Promise<string | undefined> {
  const [slot] = (await client.query(SLOT, [names.slot])).rows;
  if (slot === undefined) return undefined;
  metrics.replicationSlotLag(Math.max(0, Number(slot.retained)), Math.max(0, Number(slot.unconfirmed)));
  const status = SLOT_STATUSES.find((each) => each === slot.wal_status);
  if (status !== undefined) metrics.replicationSlotStatus(status);
  return String(slot.wal_status);
}

const SLOT = `
SELECT s.wal_status,
       pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), s.restart_lsn) AS retained,
       pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), s.confirmed_flush_lsn) AS unconfirmed
FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = $1`;

/** @throws Error when server or publication no longer fit, or cannot be read */
async function watchSlot(client: pg.Client, options: PostgresLogicalOptions, signal: AbortSignal): Promise<never> {
  for (;;) {
    await sleep(CHECK_INTERVAL_MS, signal);
    await checkServer(client, options);
    await noteSlot(client, options);
  }
}

/**
 * Streams the log of the slot. The server may discard its log up to the confirmed position, which also advances without
 * inserts: the server reports how far it has read. So it never retains log of other tables and databases.
 *
 * @param client a replication connection that runs nothing
 * @throws Error when the stream ends or the server falls silent
 */
async function streamChanges(client: pg.Client, options: PostgresLogicalOptions, events: LogEvents): Promise<never> {
  const { names, server, clock } = options;
  const wire = wireOf(client);
  /** 0 until something was seen: the server takes it for no position. */
  let seen = 0n;
  let inserted = false;
  /** Counted, not timed: a process that was paused finds the answers waiting. */
  let unanswered = 0;
  let beat: NodeJS.Timeout | undefined;

  function take(chunk: Buffer): void {
    unanswered = 0;
    const message = parseMessage(chunk);
    if (message === undefined) return;
    if (message.kind === "insert") {
      inserted = true;
      return;
    }
    if (message.end > seen) {
      seen = message.end;
      events.reached(formatLsn(seen));
    }
    if (message.kind === "commit") {
      if (inserted) events.inserted(message.committedAt);
      inserted = false;
    }
  }

  const failed = new Promise<never>((_, reject) => {
    wire.on("copyData", ({ chunk }) => {
      try {
        take(chunk);
      } catch (error) {
        // Thrown into the driver it would end the process.
        reject(new Error("the server sent a message that cannot be read", { cause: error }));
      }
    });
    wire.once("replicationStart", () => {
      beat = setInterval(() => {
        if (unanswered < MOST_UNANSWERED) wire.sendCopyFromChunk(statusUpdate(seen, clock.now()));
        else reject(new Error(`the server has not answered for ${MOST_UNANSWERED} s: it hangs or the network is cut`));
        unanswered += 1;
      }, STATUS_INTERVAL_MS);
      events.following();
    });
  });
  const publication = pg.escapeLiteral(pg.escapeIdentifier(names.publication));
  const streaming = client.query(
    `START_REPLICATION SLOT ${pg.escapeIdentifier(names.slot)} LOGICAL 0/0 (proto_version '1', publication_names ${publication})`,
  );
  try {
    await Promise.race([failed, streaming]);
  } catch (error) {
    throw error instanceof pg.DatabaseError ? slotFault(error, names, server) : error;
  } finally {
    clearInterval(beat);
  }
  throw new Error("the server ended the stream: it shuts down");
}

type Message =
  | { readonly kind: "insert" }
  | { readonly kind: "commit"; readonly end: bigint; readonly committedAt: number }
  | { readonly kind: "keepalive"; readonly end: bigint };

const letter = (text: string) => text.charCodeAt(0);
/** Kind, start, end and time of the log data that follows. */
const DATA_HEADER_BYTES = 25;
/** The server counts its time in microseconds from 2000-01-01. */
const EPOCH_2000_MS = Date.UTC(2000, 0, 1);

/**
 * Reads just enough of the messages of streaming replication to detect that a transaction inserted rows (PostgreSQL
 * documentation, "Streaming Replication Protocol" and "Logical Replication Message Formats", protocol version 1).
 *
 * @returns undefined for a message that says nothing about that; `end` is the position after what the server has read
 */
export function parseMessage(chunk: Buffer): Message | undefined {
  if (chunk[0] === letter("k")) return { kind: "keepalive", end: chunk.readBigUInt64BE(1) };
  if (chunk[0] !== letter("w")) return undefined;
  const body = chunk.subarray(DATA_HEADER_BYTES);
  if (body[0] === letter("I")) return { kind: "insert" };
  if (body[0] !== letter("C")) return undefined;
  const committedAt = Number(body.readBigInt64BE(18) / 1000n) + EPOCH_2000_MS;
  return { kind: "commit", end: body.readBigUInt64BE(10), committedAt };
}

/** A standby status update that requests a reply. @param position the server may discard everything before it */
export function statusUpdate(position: bigint, now: number): Buffer {
  const message = Buffer.alloc(34);
  message[0] = letter("r");
  // Received, stored and applied are the same here: nothing is stored.
  for (const offset of [1, 9, 17]) message.writeBigUInt64BE(position, offset);
  message.writeBigInt64BE(BigInt(Math.round((now - EPOCH_2000_MS) * 1000)), 25);
  message[33] = 1;
  return message;
}

/** A position in the write-ahead log as the server writes it (PostgreSQL documentation, "pg_lsn Type"). */
function formatLsn(lsn: bigint): string {
  const half = (bits: bigint) => bits.toString(16).toUpperCase();
  return `${half(lsn >> 32n)}/${half(lsn & 0xffff_ffffn)}`;
}

/** Error codes: PostgreSQL documentation, appendix A. */
const OBJECT_IN_USE = "55006";
const WRONG_STATE = "55000";
const NO_RIGHT = "42501";
const UNDEFINED_OBJECT = "42704";
const LIMIT_REACHED = "53400";
const TOO_MANY_CONNECTIONS = "53300";
const QUERY_CANCELED = "57014";

function sqlState(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError ? error.code : undefined;
}

/** @param remedies by error code; "" for any other */
function fault(what: string, error: unknown, remedies: Readonly<Record<string, string>>): Error {
  const code = sqlState(error);
  // Without the driver's details, which hold values of rows and statements that belong in no log.
  const text = code === undefined ? errorText(error) : `${(error as Error).message} (SQLSTATE ${code})`;
  const remedy = remedies[code ?? ""] ?? remedies[""];
  return new Error(`${what}: ${text}${remedy === undefined ? "" : `. ${remedy}`}`);
}

function slotFault(error: unknown, { slot }: Names, server: Server): Error {
  return fault(`replication slot ${slot}`, error, {
    [NO_RIGHT]: grantReplication(server),
    [OBJECT_IN_USE]:
      "One process at a time captures: set outbox.capture.enabled to false in the others, or name another outbox.capture.slot. A connection that was cut off ends after wal_sender_timeout of the server",
    [LIMIT_REACHED]: "Raise max_replication_slots of the server, or drop an unused slot",
    // A decoder sees the catalogue of the moment at which the log was written.
    [UNDEFINED_OBJECT]: `If this lasts, the slot still has to read log from before the publication was made. ${dropSlot(slot)}`,
    [WRONG_STATE]: `If the server no longer has the log that the slot needs: ${dropSlot(slot)}`,
  });
}

function dropSlot(slot: string): string {
  return `To start over run: SELECT pg_drop_replication_slot(${pg.escapeLiteral(slot)}). The service then makes a new slot by itself`;
}

function grantReplication({ username }: Server): string {
  return `The user needs the right to replicate: ALTER ROLE ${pg.escapeIdentifier(username)} REPLICATION (managed servers have a role for it, such as rds_replication)`;
}

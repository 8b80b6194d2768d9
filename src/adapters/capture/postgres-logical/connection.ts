import type { Socket } from "node:net";
import pg from "pg";
import type { Secret } from "../../../model/secret.ts";
import type { Endpoint } from "../../stores/postgres/endpoints.ts";
import { connectFault } from "./faults.ts";

/** How to reach the server whose log is read. */
export interface ServerAddress {
  /** Ways to one server, with or without TLS, in the order in which they are tried. */
  readonly endpoints: readonly Endpoint[];
  readonly database: string;
  readonly username: string;
  readonly password: Secret;
  readonly applicationName: string;
  /** Longest statement in ms (default 30,000): making the slot waits for every open transaction. */
  readonly statementTimeoutMs?: number;
}

/** The driver's undocumented parts for replication. */
interface ReplicationWire {
  on(event: "copyData", listener: (message: { readonly chunk: Buffer }) => void): void;
  once(event: "replicationStart", listener: () => void): void;
  sendCopyFromChunk(chunk: Buffer): void;
  readonly stream: Pick<Socket, "destroy">;
}

/**
 * Opens a connection for queries, or one that can stream the log.
 *
 * @param signal disconnects when it aborts; a connection for queries also later: its running statement then fails
 * @throws Error with what to do
 */
export async function connect(
  server: ServerAddress,
  purpose: "queries" | "replication",
  signal: AbortSignal,
): Promise<pg.Client> {
  let failure: unknown;
  for (const { host, port, tls } of server.endpoints) {
    const config = {
      host,
      port,
      ssl: tls,
      user: server.username,
      password: server.password.reveal(),
      database: server.database,
      application_name: server.applicationName,
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      keepAlive: true,
      // The stream of a replication connection is one query without end; it has a watch of its own.
      ...(purpose === "queries" ? limits(server.statementTimeoutMs ?? STATEMENT_TIMEOUT_MS) : {}),
      // Not in the driver's types. `database` is logical replication.
      ...(purpose === "replication" ? { replication: "database" } : {}),
    };
    const client = new pg.Client(config);
    // A connection that breaks rejects what runs on it; unheard, the event would end the process.
    client.on("error", () => {});
    const hangUp = () => wireOf(client).stream.destroy();
    signal.addEventListener("abort", hangUp, { once: true });
    client.once("end", () => signal.removeEventListener("abort", hangUp));
    try {
      signal.throwIfAborted();
      await client.connect();
      // A stream ends itself.
      if (purpose === "replication") signal.removeEventListener("abort", hangUp);
      return client;
    } catch (error) {
      failure = error;
      signal.removeEventListener("abort", hangUp);
      await disconnect(client);
    }
  }
  throw connectFault(failure, server);
}

export function wireOf(client: pg.Client): ReplicationWire {
  return (client as unknown as { connection: ReplicationWire }).connection;
}

/** Ends the connection, and destroys it when the server does not answer. */
export async function disconnect(client: pg.Client): Promise<void> {
  const timer = setTimeout(() => wireOf(client).stream.destroy(), GOODBYE_TIMEOUT_MS);
  await client.end().catch(() => {});
  clearTimeout(timer);
}

/** The server ends a statement that takes too long; one that hangs ends nothing, and is left a little later. */
function limits(statementTimeoutMs: number): pg.ClientConfig {
  return { statement_timeout: statementTimeoutMs, query_timeout: statementTimeoutMs + HANG_MARGIN_MS };
}

const CONNECT_TIMEOUT_MS = 10_000;
const STATEMENT_TIMEOUT_MS = 30_000;
const HANG_MARGIN_MS = 5000;
const GOODBYE_TIMEOUT_MS = 1000;

/** The messages of streaming replication (PostgreSQL documentation, "Streaming Replication Protocol"). */

type ServerMessage =
  | { readonly kind: "data"; readonly body: Buffer }
  | { readonly kind: "keepalive"; readonly walEnd: bigint; readonly replyRequested: boolean };

/** @returns undefined for a message of a kind that is not known */
export function parseServerMessage(chunk: Buffer): ServerMessage | undefined {
  switch (chunk[0]) {
    case XLOG_DATA:
      return { kind: "data", body: chunk.subarray(XLOG_DATA_HEADER_BYTES) };
    case KEEPALIVE:
      return { kind: "keepalive", walEnd: chunk.readBigUInt64BE(1), replyRequested: chunk[17] === 1 };
    default:
      return undefined;
  }
}

/**
 * A standby status update.
 *
 * @param position everything before it was seen: the server may discard it
 * @param requestReply whether the server is to answer at once
 */
export function statusUpdate(position: bigint, now: number, requestReply: boolean): Buffer {
  const message = Buffer.alloc(34);
  message[0] = STATUS_UPDATE;
  // Received, stored and applied are the same here: nothing is stored.
  for (const offset of [1, 9, 17]) message.writeBigUInt64BE(position, offset);
  message.writeBigInt64BE(BigInt(Math.round((now - Date.UTC(2000, 0, 1)) * 1000)), 25);
  message[33] = requestReply ? 1 : 0;
  return message;
}

const XLOG_DATA = 0x77; // w
/** Kind, start, end and time. */
const XLOG_DATA_HEADER_BYTES = 25;
const KEEPALIVE = 0x6b; // k
const STATUS_UPDATE = 0x72; // r

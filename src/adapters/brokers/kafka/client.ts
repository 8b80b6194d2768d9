import { createRequire } from "node:module";
import { isIP, connect as netConnect, type Socket } from "node:net";
import { TLSSocket, connect as tlsConnect } from "node:tls";
import { decompress as decompressZstd } from "fzstd";
import kafkajs, {
  type ISocketFactory,
  type Kafka,
  type KafkaConfig,
  type LogEntry,
  type RetryOptions,
  type SASLOptions,
} from "kafkajs";
import snappy from "kafkajs-snappy";
import { decompressFrame } from "lz4-napi";
import { Secret } from "../../../model/secret.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { KafkaConnection } from "./schema.ts";

interface KafkaClientOptions {
  /** Timeout of connecting, TLS included, in ms. */
  readonly connectTimeoutMs: number;
  readonly requestTimeoutMs: number;
  /** Retries by the client before it reports the failure. */
  readonly retries: number;
  /** Which bootstrap server to ask first: a counter, taken modulo their number. */
  readonly firstServer: number;
  readonly log: Log;
}

/** A client, and the means to end everything it does. */
export interface KafkaClient {
  readonly kafka: Kafka;
  readonly sockets: Sockets;
}

/** After partitions were added, replicas may choose different ones for the same key for this long. */
export const METADATA_MAX_AGE_MS = 30_000;

let prepared = false;

export function createKafkaClient(connection: KafkaConnection, options: KafkaClientOptions): KafkaClient {
  if (!prepared) {
    registerCodecs();
    patchClient();
    prepared = true;
  }
  const sockets = new Sockets();
  const servers = brokerAddresses(connection.bootstrapServers);
  const first = options.firstServer % Math.max(1, servers.length);
  const config: KafkaConfig = {
    clientId: "svc",
    brokers: [...servers.slice(first), ...servers.slice(0, first)],
    ssl: connection.securityProtocol.endsWith("SSL"),
    connectionTimeout: options.connectTimeoutMs,
    authenticationTimeout: options.connectTimeoutMs,
    requestTimeout: options.requestTimeoutMs,
    retry: retryOptions(options.retries),
    socketFactory: sockets.create,
    logLevel: kafkajs.logLevel.INFO,
    logCreator: () => (entry) => forward(entry, options.log),
    ...(connection.securityProtocol.startsWith("SASL_") && { sasl: saslOptions(connection) }),
  };
  return { kafka: new kafkajs.Kafka(config), sockets };
}

/** The client's retries in full: kafkajs takes missing options from defaults that depend on `NODE_ENV`. */
export function retryOptions(retries: number): RetryOptions {
  return { retries, initialRetryTime: 50, maxRetryTime: 500, factor: 0.2, multiplier: 2 };
}

function saslOptions(connection: KafkaConnection): SASLOptions {
  const { saslMechanism = "PLAIN", saslUsername: username = "", saslPassword = new Secret("") } = connection;
  const password = saslPassword.reveal();
  switch (saslMechanism) {
    case "PLAIN":
      return { mechanism: "plain", username, password };
    case "SCRAM-SHA-256":
      return { mechanism: "scram-sha-256", username, password };
    case "SCRAM-SHA-512":
      return { mechanism: "scram-sha-512", username, password };
    default:
      return saslMechanism satisfies never;
  }
}

/**
 * The user of the client logs connection faults once; the client's own lines per attempt are for debugging. Only the
 * client reports findings of the consumer group (offsets out of range, new partitions, foreign topics).
 */
function forward({ namespace, level, log: entry }: LogEntry, log: Log): void {
  const { message: detail, broker, topic, partition, unknownPartitions } = entry;
  const place = { topic, partition, partitions: unknownPartitions };
  const fields = { namespace, detail, ...place, ...(typeof broker === "string" && { broker }) };
  const matters = namespace === "ConsumerGroup" && level <= kafkajs.logLevel.WARN;
  if (matters) log.warn(fields, "Kafka's client reports a problem");
  else log.debug(fields, "Kafka's client reports");
}

const DEFAULT_PORT = 9092;
/** Replaces the colons of an IPv6 address, at which the client would split host and port. */
const COLON = "_";

/**
 * @param bootstrapServers comma-separated `host:port`; the port defaults to 9092, an IPv6 address is in brackets
 * @returns addresses for the client, for {@link hostOf} to undo
 */
export function brokerAddresses(bootstrapServers: string): readonly string[] {
  return bootstrapServers
    .split(",")
    .map((address) => address.trim())
    .filter((address) => address !== "")
    .map((address) => {
      const [, host = address, port = String(DEFAULT_PORT)] = /^(\[[^\]]*\]|[^:]*)(?::(.*))?$/.exec(address) ?? [];
      return `${host.replaceAll(":", COLON)}:${port}`;
    });
}

/** The host to connect to, from {@link brokerAddresses} or as announced by a broker. */
export function hostOf(host: string): string {
  const literal = /^\[(.*)\]$/.exec(host)?.[1];
  return literal === undefined ? host : literal.replaceAll(COLON, ":");
}

/** Registers every compression of the protocol for reading; the client has gzip. Nothing is sent compressed. */
function registerCodecs(): void {
  const { CompressionCodecs, CompressionTypes } = kafkajs;
  CompressionCodecs[CompressionTypes.Snappy] = snappy;
  const compress = () => Promise.reject(new Error("records are not compressed: only reading is supported"));
  CompressionCodecs[CompressionTypes.LZ4] = () => ({ compress, decompress: (bytes: Buffer) => decompressFrame(bytes) });
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress,
    async decompress(bytes: Buffer) {
      const { buffer, byteOffset, byteLength } = decompressZstd(bytes);
      return Buffer.from(buffer, byteOffset, byteLength);
    },
  });
}

const KEEP_ALIVE_MS = 60_000;

/**
 * The connections of one client, to end them whatever it is doing: its own `disconnect` waits for answers that may
 * never come, and leaks connections that a broker does not close.
 */
export class Sockets {
  readonly #open = new Set<Socket>();
  #closed = false;

  /** Called by the client for each connection. Throws after `cut`, which ends the client's own retries. */
  readonly create: ISocketFactory = ({ host, port, ssl, onConnect }) => {
    if (this.#closed) throw new Error("the client was closed");
    const target = { host: hostOf(host), port };
    const servername = isIP(target.host) === 0 ? { servername: target.host } : {};
    const socket = ssl ? tlsConnect({ ...target, ...servername, ...ssl }, onConnect) : netConnect(target, onConnect);
    this.#open.add(socket);
    return (
      socket
        .setKeepAlive(true, KEEP_ALIVE_MS)
        .setNoDelay(true)
        // An error after the client has released the socket must not end the process.
        .on("error", () => {})
        .on("close", () => this.#open.delete(socket))
    );
  };

  /**
   * Ends every connection now, unsent data included: a record in it must not reach the broker after its repetition on
   * another connection. Requests in flight fail, and new connections are refused.
   */
  cut(): void {
    this.#closed = true;
    const reason = new Error("the connection was cut");
    for (const socket of [...this.#open]) {
      // A reset fits neither TLS nor a socket that is connecting or ending: libuv then never releases the handle.
      if (socket.connecting || socket.writableEnded || socket instanceof TLSSocket) socket.destroy(reason);
      else {
        // The client listens for "error" and "end"; a reset emits only "close".
        socket.emit("error", reason);
        socket.resetAndDestroy();
      }
    }
  }
}

const internals = createRequire(import.meta.url);

/** Changes kafkajs 2.2.4, which is pinned, in this process. Call it once. */
function patchClient(): void {
  quietRequestQueue();
  leanEncoder();
}

interface RequestQueue {
  readonly pending: readonly unknown[];
  scheduleCheckPendingRequests(): void;
}

/**
 * Keeps kafkajs 2.2.4 from checking every millisecond, on each connection, for requests that wait when none does. The
 * timer of that check has a negative delay, which newer versions of Node report on stderr (TimeoutNegativeWarning).
 */
function quietRequestQueue(): void {
  const queue: RequestQueue = internals("kafkajs/src/network/requestQueue").prototype;
  const schedule = queue.scheduleCheckPendingRequests;
  queue.scheduleCheckPendingRequests = function () {
    if (this.pending.length > 0) schedule.call(this);
  };
}

interface Encoder {
  buf: Buffer;
  readonly offset: number;
  ensureAvailable(length: number): void;
}

interface EncoderClass {
  readonly prototype: Encoder;
  nextPowerOfTwo(value: number): number;
}

/** The size that kafkajs 2.2.4 begins an encoder with unless told. */
const USUAL_BYTES = 511;
/** Enough for a header. The engine keeps a buffer of up to 64 bytes in its own heap. */
const FEW_BYTES = 64;

/**
 * Keeps kafkajs 2.2.4 from zeroing 512 bytes for each record and each of its headers, and the space in which they grow:
 * encoding a record of 1 kB takes 4 instead of 8 µs, a twelfth of its delivery. The bytes on the wire are the same.
 */
function leanEncoder(): void {
  const encoder: EncoderClass = internals("kafkajs/src/protocol/encoder");
  const { nextPowerOfTwo } = encoder;
  encoder.nextPowerOfTwo = (bytes) => (bytes === USUAL_BYTES ? FEW_BYTES : nextPowerOfTwo(bytes));
  encoder.prototype.ensureAvailable = function (length) {
    const needed = this.offset + length;
    if (needed <= this.buf.length) return;
    // What lies behind the offset is never sent.
    const larger = Buffer.allocUnsafe(nextPowerOfTwo(needed));
    this.buf.copy(larger, 0, 0, this.offset);
    this.buf = larger;
  };
}

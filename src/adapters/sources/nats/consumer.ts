import {
  AckPolicy,
  type ConsumerInfo,
  DeliverPolicy,
  ErrorCode,
  type Msg,
  millis,
  type NatsError,
  nanos,
  ReplayPolicy,
} from "nats";
import { errorText } from "../../../model/errors.ts";
import type { Headers } from "../../../model/rows.ts";
import type { BrokerMessage } from "../../../ports/source.ts";
import { headerText } from "../../brokers/headerText.ts";
import type { NatsLink } from "../../brokers/nats/link.ts";
import type { NatsSourceConfig } from "./kind.ts";

export interface BoundConsumer {
  /** Shortest wait before the server redelivers an unacknowledged message, in ms. */
  readonly ackWaitMs: number;
  /** Most messages per request. */
  readonly maxBatch: number;
  /** Longest time a request may stay open, in ms. */
  readonly maxExpiresMs: number;
  /** It did not exist before. */
  readonly created: boolean;
  /** Its state before the first request. */
  readonly info: ConsumerInfo;
}

const API_TIMEOUT_MS = 5000;
const STREAM_NOT_FOUND = 10059;
const CONSUMER_NOT_FOUND = 10014;
/** The server's default. */
const DEFAULT_ACK_WAIT = nanos(30_000);
const DEFAULT_MAX_ACK_PENDING = 1000;
/** Concurrent replicas, each with two batches in its buffer, before the server holds messages back. */
const REPLICAS = 8;
const UNLIMITED = -1;
const EVERY_SUBJECT = ">";

/**
 * Finds the durable consumer, or creates it: explicit acknowledgement, from the first message of the stream, unlimited
 * deliveries. An existing one keeps its settings.
 *
 * @throws Error with the cause and the remedy: the stream does not exist, JetStream is off, a permission is missing, or
 * the existing consumer would lose messages
 */
export async function bindConsumer(link: NatsLink, options: NatsSourceConfig): Promise<BoundConsumer> {
  const { stream, durable } = options;
  try {
    const manager = await link.connection.jetstreamManager({ checkAPI: false, timeout: API_TIMEOUT_MS });
    const existing = await manager.consumers.info(stream, durable).catch((error: unknown) => {
      if (apiCode(error) === CONSUMER_NOT_FOUND) return undefined;
      throw error;
    });
    if (existing !== undefined) return bound(existing, options, false);
    // Another replica may create it concurrently: with the same settings both succeed.
    return bound(await manager.consumers.add(stream, newConsumer(options)), options, true);
  } catch (error) {
    throw new Error(link.endReason ?? problemText(error, options));
  }
}

function newConsumer({ durable, filterSubject, ackWaitMs, batchSize }: NatsSourceConfig) {
  return {
    durable_name: durable,
    ack_policy: AckPolicy.Explicit,
    deliver_policy: DeliverPolicy.All,
    replay_policy: ReplayPolicy.Instant,
    ack_wait: nanos(ackWaitMs),
    max_deliver: UNLIMITED,
    max_ack_pending: Math.max(DEFAULT_MAX_ACK_PENDING, 2 * REPLICAS * batchSize),
    ...(filterSubject ? { filter_subject: filterSubject } : {}),
  };
}

function bound(info: ConsumerInfo, options: NatsSourceConfig, created: boolean): BoundConsumer {
  const { max_batch, max_expires } = info.config;
  const losses = lossesOf(info, options);
  if (losses.length > 0)
    throw new Error(`${losses.join("; ")}; change it (nats consumer edit), delete it, or name another durable`);
  return {
    ackWaitMs: shortestWaitMs(info),
    maxBatch: Math.min(options.batchSize, max_batch || Number.POSITIVE_INFINITY),
    maxExpiresMs: max_expires ? millis(max_expires) : Number.POSITIVE_INFINITY,
    created,
    info,
  };
}

/** The settings of a consumer by which a message published from now on might never arrive. */
function lossesOf(info: ConsumerInfo, { filterSubject }: NatsSourceConfig): readonly string[] {
  const { ack_policy, deliver_subject, filter_subject, max_deliver = UNLIMITED, ...config } = info.config;
  const reads = config.filter_subjects?.join(", ") || filter_subject || EVERY_SUBJECT;
  const losses = [
    deliver_subject !== undefined && "it is a push consumer, and a pull consumer is needed",
    ack_policy !== AckPolicy.Explicit && `its acknowledgement policy is ${ack_policy}, and explicit is needed`,
    config.headers_only === true && "it delivers headers without bodies",
    reads !== (filterSubject || EVERY_SUBJECT) &&
      `it reads ${reads}, and filterSubject is ${filterSubject || "not set, which means every subject"}`,
    max_deliver > 0 && `it gives a message up after ${max_deliver} deliveries (max_deliver), and -1 is needed`,
    info.paused === true && `it is paused until ${config.pause_until}; resume it (nats consumer resume)`,
  ];
  return losses.filter((each) => each !== false);
}

function shortestWaitMs({ config }: ConsumerInfo): number {
  const waits = [config.ack_wait ?? DEFAULT_ACK_WAIT, ...(config.backoff ?? [])];
  return millis(Math.min(...waits.filter((wait) => wait > 0)));
}

function apiCode(error: unknown): number | undefined {
  return (error as NatsError).api_error?.err_code;
}

function problemText(error: unknown, { stream, durable }: NatsSourceConfig): string {
  if (apiCode(error) === STREAM_NOT_FOUND) {
    return `the stream ${stream} does not exist: create it; the service never creates a stream`;
  }
  const { code } = Object(error) as { readonly code?: unknown };
  const text = errorText(error);
  switch (code) {
    case ErrorCode.JetStreamNotEnabled:
      return `JetStream does not answer: enable it at the server and for this account (${text})`;
    case ErrorCode.Timeout:
      return `JetStream did not answer within ${API_TIMEOUT_MS} ms: check the state of the cluster`;
    case ErrorCode.PermissionsViolation:
      return `the user lacks a permission to read the stream ${stream} through the consumer ${durable}: ${text}`;
    default:
      return `the consumer ${durable} of the stream ${stream} cannot be used: ${text}`;
  }
}

/** A message of the stream, with its acknowledgement subject. */
export interface FetchedMessage {
  readonly acknowledgeTo: string;
  readonly message: BrokerMessage;
}

/** The unacknowledged messages: the batch in progress, then the waiting ones. */
export class FetchBuffer {
  readonly #batchSize: number;
  #taking: readonly FetchedMessage[] = [];
  #waiting: FetchedMessage[] = [];
  #wake: () => void = () => {};
  #closed = false;

  constructor(batchSize: number) {
    this.#batchSize = batchSize;
  }

  /** The buffer holds at most one batch, so another one fits. */
  get hasRoom(): boolean {
    return this.#taking.length + this.#waiting.length <= this.#batchSize;
  }

  get all(): readonly FetchedMessage[] {
    return [...this.#taking, ...this.#waiting];
  }

  add(message: FetchedMessage): void {
    this.#waiting.push(message);
    this.#wake();
  }

  /** The next batch, in the order of arrival, in progress until `done`; waits for messages. Empty after `close`. */
  async next(): Promise<readonly FetchedMessage[]> {
    if (this.#waiting.length === 0 && !this.#closed) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#closed) return [];
    this.#taking = this.#waiting.splice(0, this.#batchSize);
    return this.#taking;
  }

  /** The batch in progress has been taken. */
  done(): void {
    this.#taking = [];
  }

  /** The batch in progress was not taken: it goes back to the front. */
  putBack(): void {
    this.#waiting = [...this.#taking, ...this.#waiting];
    this.#taking = [];
  }

  close(): void {
    this.#closed = true;
    this.#wake();
  }

  /** Removes the waiting messages and returns them. */
  release(): readonly FetchedMessage[] {
    return this.#waiting.splice(0);
  }
}

/**
 * Above what any of our consumers leaves unacknowledged, unless most of a long range is acknowledged: then the wait
 * runs its course.
 */
const MAX_RECALLED = 20_000;
const ANSWER_TIMEOUT_MS = 5000;
const NOT_TAKEN = "-NAK";

/**
 * Makes the server redeliver, at once and in order, messages that it delivered to a broken connection or a killed
 * process. Otherwise they arrive when their acknowledgement wait ends, after all later ones, and the order of arrival
 * is lost. Call it before the first request of a session. Recalls nothing while other replicas read: the messages may
 * be theirs, and replicas have no order among them.
 *
 * @param info of the consumer before the first request
 * @param held messages in the buffer, or taken and not yet acknowledged
 * @returns how many messages were recalled
 * @throws Error when the server does not answer
 */
export async function redeliverLost(
  { connection }: NatsLink,
  { stream, durable }: { readonly stream: string; readonly durable: string },
  info: ConsumerInfo,
  held: readonly FetchedMessage[],
): Promise<number> {
  const { ack_floor, delivered, num_ack_pending, num_waiting } = info;
  const [acknowledgedTo, deliveredTo] = [ack_floor.stream_seq, delivered.stream_seq];
  // Open requests belong to other replicas while this one has none.
  if (num_ack_pending === 0 || num_waiting > 0 || deliveredTo - acknowledgedTo > MAX_RECALLED) return 0;
  const ours = new Set(held.map(({ acknowledgeTo }) => Number(streamPlace(acknowledgeTo).sequence)));
  const lost: number[] = [];
  for (let sequence = acknowledgedTo + 1; sequence <= deliveredTo; sequence += 1) {
    if (!ours.has(sequence)) lost.push(sequence);
  }
  if (lost.length === 0) return 0;
  // The acknowledgement subject of such a message (NATS ADR-15); the server skips messages acknowledged meanwhile.
  const answerTo = (sequence: number) => `$JS.ACK.${stream}.${durable}.1.${sequence}.${delivered.consumer_seq}.0.0`;
  const last = lost.length - 1;
  for (const sequence of lost.slice(0, last)) connection.publish(answerTo(sequence), NOT_TAKEN);
  try {
    // Answers are processed in order: after this one, the recalled messages are queued before all new ones.
    await connection.request(answerTo(lost[last] ?? deliveredTo), NOT_TAKEN, { timeout: ANSWER_TIMEOUT_MS });
  } catch (error) {
    throw new Error(`the consumer ${durable} of the stream ${stream} does not answer: ${errorText(error)}`);
  }
  return lost.length;
}

/** A message's position in its stream. */
interface StreamPlace {
  readonly stream: string;
  readonly sequence: string;
  /** When the stream stored it, in ns since the Unix epoch. */
  readonly storedAtNs: string;
}

/**
 * Parses the acknowledgement subject of a delivery (NATS ADR-15):
 * `$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>`, or with domain and account
 * before the stream.
 */
function streamPlace(acknowledgeTo: string): StreamPlace {
  const tokens = acknowledgeTo.split(".");
  const first = tokens.length >= 11 ? 4 : 2;
  return {
    stream: tokens[first] ?? "",
    sequence: tokens[first + 3] ?? "",
    storedAtNs: tokens[first + 5] ?? "",
  };
}

/** The fallback identity of a message without a key. */
type IdempotencyFrom = "body" | "sequence";

/** Headers by which a stream marks the deletion of a subject's message (NATS ADR-8, ADR-43). */
const DELETION_HEADERS = ["KV-Operation", "Nats-Marker-Reason"] as const;

/**
 * Converts a message of a stream for the intake. A deletion marker has no body, like Kafka's tombstone. All markers
 * look alike, so its position identifies it, with the time, since a recreated stream counts from 1 again.
 */
export function brokerMessageOf(message: Msg, idempotencyFrom: IdempotencyFrom): BrokerMessage {
  const { data, subject, reply = "" } = message;
  const headers = messageHeaders(message);
  const { stream, sequence, storedAtNs } = streamPlace(reply);
  const storedAtMs = Number(storedAtNs) / 1_000_000;
  const isDeletion = data.length === 0 && DELETION_HEADERS.some((name) => name in headers);
  return {
    body: isDeletion ? null : Buffer.from(data.buffer, data.byteOffset, data.byteLength),
    headers,
    origin: {
      "x-nats-subject": subject,
      "x-nats-stream": stream,
      "x-nats-sequence": sequence,
      "x-nats-timestamp": headerText(new Date(storedAtMs)),
    },
    publishedAt: Math.floor(storedAtMs),
    streamPlace: isDeletion || idempotencyFrom === "sequence" ? `${stream}:${sequence}:${storedAtNs}` : undefined,
  };
}

/**
 * The wire data in the client's message. The client's own parser drops all headers when one name is not ASCII, and
 * replaces every byte that is not UTF-8 with the same character: two idempotency keys could become one, and the second
 * message would be lost as a duplicate.
 */
interface WireMessage {
  /** Header block, if any, then body. */
  readonly _rdata: Uint8Array;
  /** `hdr`: length of the header block in bytes, -1 without one. */
  readonly _msg: { readonly hdr: number };
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the ASCII characters
const ASCII = /^[\x00-\x7f]*$/;
/** Only these: a byte of a UTF-8 character may look like another blank. */
const BLANKS_AROUND = /^[ \t]+|[ \t]+$/g;

/**
 * The headers of a message (NATS ADR-4), names as received. Repeated names are joined with a comma and a blank; bytes
 * that are not UTF-8 become base64.
 */
function messageHeaders(message: Msg): Headers {
  const { _rdata: bytes, _msg } = message as unknown as WireMessage;
  if (_msg.hdr <= 0) return {};
  const headers = new Map<string, string>();
  const block = Buffer.from(bytes.buffer, bytes.byteOffset, _msg.hdr).toString("latin1");
  for (const line of block.split("\r\n").slice(1)) {
    const colon = line.indexOf(":");
    if (colon < 1) continue;
    const name = textOf(line.slice(0, colon));
    const value = textOf(line.slice(colon + 1).replace(BLANKS_AROUND, ""));
    const former = headers.get(name);
    headers.set(name, former === undefined ? value : `${former}, ${value}`);
  }
  return Object.fromEntries(headers);
}

/** @param latin1 one character per byte */
function textOf(latin1: string): string {
  return ASCII.test(latin1) ? latin1 : (headerText(Buffer.from(latin1, "latin1")) ?? "");
}

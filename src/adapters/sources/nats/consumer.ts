import {
  AckPolicy,
  type ConsumerInfo,
  DeliverPolicy,
  ErrorCode,
  millis,
  type NatsError,
  nanos,
  ReplayPolicy,
} from "nats";
import { errorText } from "../../../model/errors.ts";
import type { NatsLink } from "../../brokers/nats/link.ts";
import type { NatsSourceConfig } from "./kind.ts";

/** A durable consumer on the server. */
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
    throw new Error(link.lost ?? problemText(error, options));
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

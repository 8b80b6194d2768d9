import { AckPolicy, type ConsumerInfo, DeliverPolicy, ErrorCode, type NatsError, nanos, ReplayPolicy } from "nats";
import { errorText } from "../../../model/errors.ts";
import type { NatsLink } from "../../brokers/nats/link.ts";
import type { NatsSourceConfig } from "./schema.ts";

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
  /** Harmless differences from the configuration. */
  readonly differences: readonly string[];
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

/**
 * Finds the durable consumer, or creates it: explicit acknowledgement, from the first message of the stream, unlimited
 * deliveries. An existing one is used as it is.
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

/** A consumer that cannot serve; its message is complete. */
class UnfitConsumer extends Error {}

function bound(info: ConsumerInfo, options: NatsSourceConfig, created: boolean): BoundConsumer {
  const { config } = info;
  const { stream, durable, ackWaitMs, batchSize } = options;
  const filters = config.filter_subjects ?? (config.filter_subject ? [config.filter_subject] : []);
  const wanted = options.filterSubject ? [options.filterSubject] : [];
  const sameFilter = JSON.stringify(filters) === JSON.stringify(wanted) || (wanted[0] === ">" && filters.length === 0);
  const reads = filters.length === 0 ? "every subject" : filters.join(", ");
  const unfit =
    (config.deliver_subject !== undefined && "it is a push consumer, and a pull consumer is needed") ||
    (config.ack_policy !== AckPolicy.Explicit &&
      `its acknowledgement policy is ${config.ack_policy}, and explicit is needed: with another one messages get lost`) ||
    (config.headers_only === true && "it delivers headers without bodies") ||
    (wanted.length > 0 && !sameFilter && `it reads ${reads}, and filterSubject is ${wanted[0]}`);
  if (unfit) {
    throw new UnfitConsumer(
      `the consumer ${durable} of the stream ${stream} cannot be used: ${unfit}; delete it or name another durable`,
    );
  }

  const waits = [config.ack_wait ?? DEFAULT_ACK_WAIT, ...(config.backoff ?? [])];
  const shortestWaitMs = milliseconds(Math.min(...waits.filter((wait) => wait > 0)));
  const maxDeliver = config.max_deliver ?? UNLIMITED;
  const differences = [
    ...(ackWaitMs > 0 && shortestWaitMs !== ackWaitMs
      ? [`it delivers again after ${shortestWaitMs} ms, ackWaitMs is ${ackWaitMs}`]
      : []),
    ...(sameFilter ? [] : [`it reads ${reads}, and no filterSubject is set, which means every subject`]),
    ...(maxDeliver > 0 ? [`it gives a message up after ${maxDeliver} deliveries, and unlimited is expected`] : []),
  ];
  return {
    ackWaitMs: shortestWaitMs,
    maxBatch: Math.min(batchSize, config.max_batch || Number.POSITIVE_INFINITY),
    maxExpiresMs: config.max_expires ? milliseconds(config.max_expires) : Number.POSITIVE_INFINITY,
    created,
    differences,
    info,
  };
}

function milliseconds(nanoseconds: number): number {
  return nanoseconds / 1_000_000;
}

function apiCode(error: unknown): number | undefined {
  return (error as NatsError).api_error?.err_code;
}

function problemText(error: unknown, { stream, durable }: NatsSourceConfig): string {
  if (error instanceof UnfitConsumer) return error.message;
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

import type { Options } from "amqplib";
import { PublishError } from "../../../model/errors.ts";
import type { Headers } from "../../../model/rows.ts";
import type { OutboundMessage } from "../../../ports/destination.ts";
import { RABBITMQ_FAULT_CODES, type RabbitmqFault } from "../../brokers/rabbitmq/fault.ts";
import { PendingPublish, type PublishBounds } from "../pendingPublish.ts";

/** One publish and its AMQP form. */
export class PendingMessage extends PendingPublish {
  readonly id: string;
  readonly exchange: string;
  readonly routingKey: string;
  readonly body: Buffer;
  readonly envelope: Envelope;
  /** It was sent on a channel that another message closed. */
  isRepeated = false;
  /** Makes the timeout error: its holder knows what it waits for. */
  onExpire: () => PublishError = () => rabbitmqError("timeout", "the publish took too long");

  constructor(message: OutboundMessage, envelope: Envelope, bounds: PublishBounds) {
    super(bounds);
    this.id = message.id;
    this.exchange = message.address ?? "";
    this.routingKey = message.routingKey ?? "";
    this.body = Buffer.from(message.body, "utf8");
    this.envelope = envelope;
  }

  protected override expiryError(): PublishError {
    return this.onExpire();
  }
}

interface Envelope {
  readonly options: Options.Publish;
  /** Size of the properties on the wire, in bytes. */
  readonly bytes: number;
}

/** Longest AMQP short string (0-9-1, section 4.2.5.3) in bytes: names, routing keys, most properties. */
const SHORT_STRING_BYTES = 255;
/**
 * RabbitMQ reads these as more routing keys ("Sender-selected Distribution"), and closes the channel if they are text.
 */
const ROUTING_HEADERS: ReadonlySet<string> = new Set(["CC", "BCC"]);
/** Class, weight, body size, flags, delivery mode, time and the length of the header table. */
const FIXED_BYTES = 27;

/**
 * The AMQP properties of a message: `messageId`, `contentType` and `correlationId` in addition to their headers, time
 * in seconds, and every header as text. Headers that an AMQP source made of the properties `type`, `app-id` and
 * `priority` become properties again.
 *
 * @param persistent whether the broker keeps it on disk
 * @throws PublishError `message_invalid` when AMQP cannot carry a header
 */
export function envelopeOf(message: OutboundMessage, persistent: boolean, nowMs: number): Envelope {
  const { headers, properties } = withoutProperties(message.headers);
  const options: Options.Publish = {
    ...properties,
    headers,
    messageId: message.id,
    timestamp: Math.floor(nowMs / 1000),
    persistent,
    mandatory: true,
    contentEncoding: "utf-8",
  };
  let bytes = FIXED_BYTES + shortBytes(message.id) + shortBytes("utf-8");
  if (properties !== undefined) bytes += shortBytes(properties.type ?? "") + shortBytes(properties.appId ?? "") + 1;
  for (const name of Object.keys(headers)) {
    const value = headers[name] ?? "";
    bytes += headerBytes(name) + Buffer.byteLength(value);
    const lowerCase = name.toLowerCase();
    if (lowerCase !== "content-type" && lowerCase !== "x-correlation-id") continue;
    if (Buffer.byteLength(value) > SHORT_STRING_BYTES) continue;
    if (lowerCase === "content-type") options.contentType = value;
    else options.correlationId = value;
    bytes += shortBytes(value);
  }
  return { options, bytes };
}

type SentProperties = Pick<Options.Publish, "type" | "appId" | "priority">;

/** Moves the headers `type` and `app-id`, made by an AMQP source, back to the properties. */
function withoutProperties(headers: Headers): { readonly headers: Headers; readonly properties?: SentProperties } {
  if (!Object.keys(headers).some((name) => /^x-amqp-(type|app-id|priority)$/i.test(name))) return { headers };
  const properties: SentProperties = {};
  const others: [string, string][] = [];
  for (const [name, value] of Object.entries(headers)) {
    const lowerCase = name.toLowerCase();
    const isShort = Buffer.byteLength(value) <= SHORT_STRING_BYTES;
    if (lowerCase === "x-amqp-type" && isShort) properties.type = value;
    else if (lowerCase === "x-amqp-app-id" && isShort) properties.appId = value;
    else if (lowerCase === "x-amqp-priority" && isOctet(value)) properties.priority = Number(value);
    else others.push([name, value]);
  }
  const isDouble = (name: string, value: string) =>
    (name === "type" && value === properties.type) || (name === "app-id" && value === properties.appId);
  return { headers: Object.fromEntries(others.filter(([name, value]) => !isDouble(name, value))), properties };
}

function isOctet(value: string): boolean {
  return /^\d{1,3}$/.test(value) && Number(value) <= 255;
}

/**
 * Checks a name that AMQP sends as a short string.
 *
 * @param what for the error: `the routing key`
 * @throws PublishError `message_invalid` when it is too long
 */
export function checkShortString(what: string, value: string): void {
  const bytes = Buffer.byteLength(value);
  if (bytes > SHORT_STRING_BYTES)
    throw rabbitmqError(
      "message_invalid",
      `${what} has ${bytes} bytes, and AMQP allows ${SHORT_STRING_BYTES}: shorten it`,
    );
}

/** A header without its value: name, type and length. */
function headerBytes(name: string): number {
  if (ROUTING_HEADERS.has(name))
    throw rabbitmqError(
      "message_invalid",
      `the header ${name} cannot be sent: RabbitMQ reads it as a list of further routing keys; give it another name`,
    );
  checkShortString("the name of a header", name);
  return shortBytes(name) + 5;
}

function shortBytes(value: string): number {
  return 1 + Buffer.byteLength(value);
}

/** Why a publish to RabbitMQ failed: the codes of its `PublishError`. */
export const RABBITMQ_ERROR_CODES = [
  ...RABBITMQ_FAULT_CODES,
  /** The exchange has no queue for the routing key. */
  "unroutable",
  /** The broker refused the message. */
  "nacked",
  /** The broker blocked publishers, for lack of memory or disk, until the timeout. */
  "blocked",
  /** The message exceeds the broker's limit. */
  "message_too_large",
  /** AMQP cannot carry a header, the routing key or the exchange's name. */
  "message_invalid",
] as const;
type RabbitmqErrorCode = (typeof RABBITMQ_ERROR_CODES)[number];

/** A {@link PublishError} whose code is one of {@link RABBITMQ_ERROR_CODES}. */
export function rabbitmqError(code: RabbitmqErrorCode, message: string, status?: string): PublishError {
  return new PublishError(code, message, { isPermanent: code === "message_invalid", status });
}

export function publishErrorOf(fault: RabbitmqFault): PublishError {
  return rabbitmqError(fault.code, fault.message, fault.status);
}

import { createHash } from "node:crypto";
import type { ConsumeMessage } from "amqplib";
import type { BrokerMessage } from "../../../ports/source.ts";
import { headerText } from "../../brokers/headerText.ts";
import type { UndecodableProperties } from "../../brokers/rabbitmq/properties.ts";

/** AMQP properties that become headers with these names, unless the message already has them. */
const PROPERTY_HEADERS = {
  "content-type": "contentType",
  "content-encoding": "contentEncoding",
  type: "type",
  "app-id": "appId",
  "reply-to": "replyTo",
} as const;

/** Deeper values are dropped: a table in thousands of tables must not exhaust the stack. */
const MAX_DEPTH = 100;

/**
 * Converts a delivery for the intake. Header tables and lists (such as `x-death`) become JSON, times ISO 8601, decimals
 * decimal text; the properties `content-type`, `content-encoding`, `type`, `app-id`, `reply-to` and `timestamp` become
 * headers unless the message has them.
 */
export function brokerMessageOf({ content, fields, properties }: ConsumeMessage): BrokerMessage {
  const { undecodable } = properties as Partial<UndecodableProperties>;
  const headers: [string, string][] = [];
  const names = new Set<string>();
  const add = (name: string, value: unknown) => {
    const text = headerText(plain(value));
    if (text !== null) headers.push([name, text]);
  };
  for (const [name, value] of Object.entries(properties.headers ?? {})) {
    names.add(name.toLowerCase());
    add(name, value);
  }
  for (const [name, property] of Object.entries(PROPERTY_HEADERS))
    if (!names.has(name)) add(name, properties[property]);
  if (!names.has("timestamp")) add("timestamp", timeOf(properties.timestamp));
  return {
    body: content,
    headers: Object.fromEntries(headers),
    origin: {
      "x-amqp-exchange": fields.exchange || null,
      "x-amqp-routing-key": fields.routingKey || null,
      "x-amqp-type": textOf(properties.type) ?? null,
      "x-amqp-app-id": textOf(properties.appId) ?? null,
      "x-amqp-priority": headerText(properties.priority),
      "x-amqp-properties": undecodable?.bytes.toString("base64") ?? null,
    },
    undecodable:
      undecodable &&
      `the AMQP properties cannot be read: ${undecodable.reason}; x-amqp-properties holds their bytes in base64`,
    messageId: undecodable === undefined ? textOf(properties.messageId) : digestOf(undecodable.bytes, content),
    correlationId: textOf(properties.correlationId),
    publishedAt: typeof properties.timestamp === "number" ? properties.timestamp * 1000 : undefined,
  };
}

/** Tells messages with unread properties apart: two with the same body are two dead rows. */
function digestOf(...parts: readonly Buffer[]): string {
  return `sha256:${parts.reduce((hash, part) => hash.update(part), createHash("sha256")).digest("hex")}`;
}

/** An empty text counts as unset. */
function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/**
 * Seconds since the Unix epoch (AMQP 0-9-1, section 4.2.5.4) as a date; the number itself beyond the range of dates.
 */
function timeOf(seconds: unknown): Date | number | undefined {
  if (typeof seconds !== "number") return undefined;
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? seconds : date;
}

/** Replaces the library's own objects with plain values, at any depth. */
function plain(value: unknown, depth = 0): unknown {
  if (typeof value !== "object" || value === null || value instanceof Uint8Array || value instanceof Date) return value;
  if (depth > MAX_DEPTH) return null;
  if (Array.isArray(value)) return value.map((each) => plain(each, depth + 1));
  const { "!": type, value: typed } = value as { readonly "!"?: unknown; readonly value?: unknown };
  if (type === "timestamp") return timeOf(typed);
  if (type === "decimal") return decimalText(typed);
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plain(each, depth + 1)]));
}

function decimalText(value: unknown): string {
  const { places = 0, digits = 0 } = Object(value) as { readonly places?: number; readonly digits?: number };
  const text = String(digits).padStart(places + 1, "0");
  return places === 0 ? text : `${text.slice(0, -places)}.${text.slice(-places)}`;
}

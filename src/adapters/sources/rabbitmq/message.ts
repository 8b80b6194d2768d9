import { createHash } from "node:crypto";
import type { ConsumeMessage } from "amqplib";
import type { BrokerMessage } from "../../../ports/source.ts";
import { headerText } from "../../brokers/headerText.ts";
import { timeOf, type UndecodableProperties } from "../../brokers/rabbitmq/properties.ts";

/** AMQP properties that become headers with these names, unless the message already has them. */
const PROPERTY_HEADERS = {
  "content-type": "contentType",
  "content-encoding": "contentEncoding",
  type: "type",
  "app-id": "appId",
  "reply-to": "replyTo",
} as const;

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
    const text = headerText(value);
    if (text !== null) headers.push([name, text]);
  };
  for (const [name, value] of Object.entries(properties.headers ?? {})) {
    names.add(name.toLowerCase());
    add(name, value);
  }
  for (const [name, property] of Object.entries(PROPERTY_HEADERS))
    if (!names.has(name)) add(name, properties[property]);
  const { timestamp } = properties;
  if (!names.has("timestamp") && typeof timestamp === "number") add("timestamp", timeOf(timestamp));
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
    publishedAt: typeof timestamp === "number" ? timestamp * 1000 : undefined,
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

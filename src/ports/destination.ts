import type { Headers, MessageId } from "../model/rows.ts";

/** A message as it leaves: route and transforms applied, headers merged. */
export interface OutboundMessage {
  /** The same at every destination and every try. */
  readonly id: MessageId;
  /** The id of the row: of a message with several destinations another one for each. */
  readonly deliveryId: MessageId;
  readonly topic: string;
  readonly key: string | null;
  /** JSON text in UTF-8. */
  readonly body: string;
  /** Row headers over the destination's static ones, plus `x-message-id`. */
  readonly headers: Headers;
  /** Rendered exchange, topic, subject or path; null for a kind without address templates, and a path without one. */
  readonly address: string | null;
  /** Rendered AMQP routing key or Kafka record key; null when there is none. */
  readonly routingKey: string | null;
}

/**
 * The exit for messages. `publish` may run concurrently; it resolves only when the receiver has acknowledged the
 * message, and rejects with `PublishError` otherwise. It bounds itself by its own `timeoutMs`, and rejects with the
 * signal's reason when `signal` aborts. Connections are made on first use and again after a fault.
 */
export interface Destination {
  publish(message: OutboundMessage, signal: AbortSignal): Promise<void>;
  /** Ends all connections. A publish that is still running rejects. Safe to call twice. */
  close(): Promise<void>;
}

/**
 * The names of spans and attributes, all of them: OpenTelemetry's semantic conventions 1.45 for messaging, databases and
 * errors (https://opentelemetry.io/docs/specs/semconv/), and our own under `svc.`. The conventions for messaging are
 * still in development; a later version changes this file alone. No attribute holds a payload, a key or the value of a
 * header.
 */
export const SCHEMA_URL = "https://opentelemetry.io/schemas/1.45.0";

export type SpanAttributes = Readonly<Record<string, string | number | boolean | undefined>>;

/** The name of a span: what is done, and at which of the few names in the configuration. */
export const SPANS = {
  received: (source: string) => `receive ${source}`,
  transform: "transform",
  store: "store",
  relay: "relay",
  sent: (destination: string | undefined) => (destination === undefined ? "send" : `send ${destination}`),
  settle: "settle",
  claimed: (source: string) => `claim ${source}`,
  acknowledged: (source: string) => `ack ${source}`,
  rejected: (source: string) => `nack ${source}`,
  replay: "replay",
} as const;

export const ERROR_TYPE = "error.type";

const BATCH_COUNT = "messaging.batch.message_count";
const MESSAGE_ID = "messaging.message.id";
const SOURCE = "svc.source";
const OUTCOME = "svc.outcome";

type Messaging = "receive" | "send" | "process" | "settle";

const messaging = (type: Messaging, name: string, system?: string, destination?: string): SpanAttributes => ({
  "messaging.system.name": system,
  "messaging.operation.type": type,
  "messaging.operation.name": name,
  "messaging.destination.name": destination,
});

/** @param broker undefined for HTTP @param from the queue, topic or stream */
export const receiptAttributes = (
  source: string,
  broker: { readonly kind: string; readonly from: string | undefined } | undefined,
): SpanAttributes => ({
  ...(broker === undefined
    ? { "http.request.method": "POST" }
    : messaging("process", "receive", broker.kind, broker.from)),
  [SOURCE]: source,
});

/** Of a Kafka record, by the headers that its source gives it. */
export const recordAttributes = (origin: Readonly<Record<string, string | null>> | undefined): SpanAttributes => {
  const { "x-kafka-partition": partition, "x-kafka-offset": offset } = origin ?? {};
  if (offset === undefined || offset === null) return {};
  return { "messaging.destination.partition.id": partition ?? undefined, "kafka.offset": Number(offset) };
};

export const receivedAttributes = (outcome: string, id?: string): SpanAttributes => ({
  [OUTCOME]: outcome,
  [MESSAGE_ID]: id,
});

/** A database as spans name it. */
export interface StatementNames {
  readonly system: "postgresql" | "microsoft.sql_server";
  readonly inbox: string;
  readonly outbox: string;
}

export const statementAttributes = (
  { system }: StatementNames,
  operation: string,
  table: string,
  rows: number,
): SpanAttributes => ({
  "db.system.name": system,
  "db.operation.name": operation,
  "db.collection.name": table,
  [BATCH_COUNT]: rows,
});

/** A destination as a span names it. `address`: of its exchange, topic or subject the template, which has no values. */
export interface NamedDestination {
  readonly name: string;
  readonly kind: string;
  readonly address: { readonly text: string; readonly isTemplate: boolean } | undefined;
}

/** @param attempt from 1 on */
export function attemptAttributes(
  destination: NamedDestination | undefined,
  { id, attempt }: { readonly id: string; readonly attempt: number },
): SpanAttributes {
  const { name, kind, address } = destination ?? {};
  const isBroker = kind !== undefined && kind !== "http";
  return {
    ...(isBroker && messaging("send", "send", kind, address?.isTemplate === false ? address.text : undefined)),
    ...(address?.isTemplate && { "messaging.destination.template": address.text }),
    [MESSAGE_ID]: id,
    "svc.destination": name,
    "svc.destination.kind": kind,
    "svc.attempt": attempt,
  };
}

/** @param status the receiver's own code */
export const attemptedAttributes = (outcome: string, receiver: string, status: string | undefined): SpanAttributes => ({
  [OUTCOME]: outcome,
  "svc.receiver": receiver,
  "http.response.status_code": /^[1-5]\d\d$/.test(status ?? "") ? Number(status) : undefined,
});

export const transformAttributes = (stage: "source" | "route" | "destination"): SpanAttributes => ({
  "svc.transform": stage,
});

export const pullAttributes = (type: "receive" | "settle", name: string, source: string): SpanAttributes => ({
  ...messaging(type, name),
  [SOURCE]: source,
});

export const countAttributes = (rows: number): SpanAttributes => ({ [BATCH_COUNT]: rows });

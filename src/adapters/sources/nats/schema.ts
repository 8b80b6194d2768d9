import type { Infer } from "../../../model/schema.ts";
import { natsConnectionKeys } from "../../brokers/nats/schema.ts";

/** Keys of a NATS source (spec, "Subject-broker source"). */
export const natsSourceSchema = {
  type: "object",
  description: "Reads an existing stream through a durable consumer.",
  required: ["servers", "stream", "durable"],
  properties: {
    servers: natsConnectionKeys.servers,
    stream: { type: "string", syntax: "notBlank", description: "Stream to read." },
    durable: {
      type: "string",
      syntax: "notBlank",
      description: "Durable consumer; replicas with the same name share the work.",
    },
    filterSubject: { type: "string", description: "Subject to read; none reads every subject." },
    ackWaitMs: {
      type: "integer",
      unit: "ms",
      minimum: 0,
      default: 30000,
      description: "Wait before an unacknowledged message is delivered again.",
    },
    batchSize: { type: "integer", minimum: 1, default: 100, description: "Most messages per fetch." },
    eventTypeFromHeader: {
      type: "boolean",
      default: false,
      description: "Every publisher sets the event type header.",
    },
    idempotencyFrom: {
      type: "string",
      enum: ["body", "sequence"],
      default: "body",
      description:
        "Idempotency key of a message without another one. `body`: a digest, so equal bodies are one message; `sequence`: its position in the stream.",
    },
    username: natsConnectionKeys.username,
    password: natsConnectionKeys.password,
    token: natsConnectionKeys.token,
  },
} as const;

export type NatsSourceConfig = Infer<typeof natsSourceSchema>;

import { boolean, type Infer, integer, ms, text } from "../../../model/schema.ts";
import { sourceKind } from "../../../ports/kinds.ts";
import { checkNats, natsLoginKeys, servers } from "../../brokers/nats/schema.ts";

/** Keys of a NATS source (spec, "Subject-broker source"). */
const natsSourceSchema = {
  type: "object",
  description: "Reads an existing stream through a durable consumer.",
  required: ["servers", "stream", "durable"],
  properties: {
    servers,
    stream: text("Stream to read.", { syntax: "notBlank" }),
    durable: text("Durable consumer, shared by replicas.", { syntax: "notBlank" }),
    filterSubject: text("Subject to read instead of all."),
    ackWaitMs: ms("Wait before an unacknowledged message is delivered again.", { minimum: 0, default: 30000 }),
    batchSize: integer("Most messages per fetch.", { minimum: 1, default: 100 }),
    eventTypeFromHeader: boolean("Every publisher sets the event type header.", { default: false }),
    idempotencyFrom: text(
      "Idempotency key of a message without one: a digest of the `body`, so equal bodies are duplicates, or its `sequence` in the stream.",
      { enum: ["body", "sequence"], default: "body" },
    ),
    ...natsLoginKeys,
  },
} as const;

export type NatsSourceConfig = Infer<typeof natsSourceSchema>;

/** A NATS source (spec, "Subject-broker source"). */
export const natsSource = sourceKind({
  schema: natsSourceSchema,
  check: checkNats,
  attributes: {
    idempotencyKey: [{ header: "Nats-Msg-Id" }, { property: "streamPlace", text: "place in the stream" }],
    aggregateId: [],
  },
  readsFrom: ({ stream }) => stream,
  create: async (config, tools) => (await import("./index.ts")).createNatsSource(config, tools),
});

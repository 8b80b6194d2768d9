import { boolean, type Infer, integer, text } from "../../../model/schema.ts";
import { sourceKind } from "../../../ports/kinds.ts";
import { bootstrapServers, checkKafka, kafkaSecurityKeys } from "../../brokers/kafka/schema.ts";

/** Keys of a Kafka source (spec, "Log-broker source"). */
const kafkaSourceSchema = {
  type: "object",
  description: "Consumes topics; commits offsets after the inbox commit.",
  required: ["bootstrapServers", "topics", "groupId"],
  properties: {
    bootstrapServers,
    topics: {
      type: "array",
      items: { type: "string", syntax: "notBlank" },
      minItems: 1,
      description: "Topics to consume.",
    },
    groupId: text("Consumer group.", { syntax: "notBlank" }),
    autoOffsetReset: text("Where topics new to the group begin.", {
      enum: ["earliest", "latest"],
      default: "earliest",
    }),
    maxPollRecords: integer("Most records at a time.", { minimum: 1, default: 100 }),
    eventTypeFromHeader: boolean("Every publisher sets the event type header.", { default: false }),
    ...kafkaSecurityKeys,
  },
} as const;

export type KafkaSourceConfig = Infer<typeof kafkaSourceSchema>;

const RECORD_KEY = { property: "recordKey", text: "record key" } as const;

/** A Kafka source (spec, "Log-broker source"). */
export const kafkaSource = sourceKind({
  schema: kafkaSourceSchema,
  check: checkKafka,
  attributes: { idempotencyKey: [RECORD_KEY], aggregateId: [RECORD_KEY] },
  readsFrom: ({ topics }) => (topics.length === 1 ? topics[0] : undefined),
  create: async (config, tools) => (await import("./index.ts")).createKafkaSource(config, tools),
});

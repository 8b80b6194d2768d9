import { sourceKind } from "../../../ports/kinds.ts";
import { checkKafka } from "../../brokers/kafka/schema.ts";
import { kafkaSourceSchema } from "./schema.ts";

const RECORD_KEY = { property: "recordKey", text: "record key" } as const;

/** A Kafka source (spec, "Log-broker source"). */
export const kafkaSource = sourceKind({
  schema: kafkaSourceSchema,
  check: checkKafka,
  attributes: { idempotencyKey: [RECORD_KEY], aggregateId: [RECORD_KEY] },
  create: async (config, tools) => (await import("./index.ts")).createKafkaSource(config, tools),
});

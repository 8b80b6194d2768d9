import { sourceKind } from "../../../ports/kinds.ts";
import { checkNats } from "../../brokers/nats/schema.ts";
import { natsSourceSchema } from "./schema.ts";

/** A NATS source (spec, "Subject-broker source"). */
export const natsSource = sourceKind({
  schema: natsSourceSchema,
  check: checkNats,
  attributes: {
    idempotencyKey: [{ header: "Nats-Msg-Id" }, { property: "streamPlace", text: "place in the stream" }],
    aggregateId: [],
  },
  create: async (config, tools) => (await import("./index.ts")).createNatsSource(config, tools),
});

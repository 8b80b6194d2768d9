import { destinationKind } from "../../../ports/kinds.ts";
import { checkNats } from "../../brokers/nats/schema.ts";
import { natsDestinationSchema } from "./schema.ts";

/** A NATS destination (spec, "Subject-broker destination"). */
export const natsDestination = destinationKind({
  schema: natsDestinationSchema,
  check: checkNats,
  address: { name: "subject", template: "subject", from: "subjectFrom" },
  routingKey: null,
  cloudEvents: { prefix: "ce-", isEncoded: true },
  explain: ({ servers }) => ({ name: "broker", text: servers }),
  create: async (config, tools) => (await import("./index.ts")).createNatsDestination(config, tools),
});

import { boolean, type Infer, ms } from "../../../model/schema.ts";
import { destinationKind } from "../../../ports/kinds.ts";
import { checkNats, natsLoginKeys, servers } from "../../brokers/nats/schema.ts";
import { addressColumn, addressTemplate } from "../../brokers/schema.ts";

/** Keys of a NATS destination (spec, "Subject-broker destination"). */
const natsDestinationSchema = {
  type: "object",
  description: "Publishes to a subject.",
  required: ["servers", "subject"],
  properties: {
    servers,
    subject: addressTemplate("Subject"),
    subjectFrom: addressColumn("subject"),
    jetStream: boolean("Wait for the stream's acknowledgement; `false`: core publish, unacknowledged.", {
      default: true,
    }),
    timeoutMs: ms("Longest wait for a publish.", { exclusiveMinimum: 0, default: 30000 }),
    ...natsLoginKeys,
  },
} as const;

export type NatsDestinationConfig = Infer<typeof natsDestinationSchema>;

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

import { boolean, type Infer, ms } from "../../../model/schema.ts";
import { natsLoginKeys, servers } from "../../brokers/nats/schema.ts";
import { addressColumn, addressTemplate } from "../../brokers/schema.ts";

/** Keys of a NATS destination (spec, "Subject-broker destination"). */
export const natsDestinationSchema = {
  type: "object",
  description: "Publishes to a subject, by default through JetStream with an acknowledgement.",
  required: ["servers", "subject"],
  properties: {
    servers,
    subject: addressTemplate("Subject"),
    subjectFrom: addressColumn("subject"),
    jetStream: boolean("`true`: wait for the stream's acknowledgement; `false`: core publish, unacknowledged.", {
      default: true,
    }),
    timeoutMs: ms("Longest wait for a publish.", { exclusiveMinimum: 0, default: 30000 }),
    ...natsLoginKeys,
  },
} as const;

export type NatsDestinationConfig = Infer<typeof natsDestinationSchema>;

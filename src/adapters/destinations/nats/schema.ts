import type { Infer } from "../../../model/schema.ts";
import { ADDRESS_COLUMNS } from "../../../ports/kinds.ts";
import { natsConnectionKeys } from "../../brokers/nats/schema.ts";

/** Keys of a NATS destination (spec, "Subject-broker destination"). */
export const natsDestinationSchema = {
  type: "object",
  description: "Publishes to a subject, by default through JetStream with an acknowledgement.",
  required: ["servers", "subject"],
  properties: {
    servers: natsConnectionKeys.servers,
    subject: { type: "string", syntax: "address", description: "Subject: a name or an address template." },
    subjectFrom: {
      type: "string",
      enum: ADDRESS_COLUMNS,
      description: "Row column that holds the subject; wins over `subject`.",
    },
    jetStream: {
      type: "boolean",
      default: true,
      description: "`true`: wait for the stream's acknowledgement; `false`: core publish, unacknowledged.",
    },
    timeoutMs: {
      type: "integer",
      unit: "ms",
      exclusiveMinimum: 0,
      default: 30000,
      description: "Longest wait for a publish.",
    },
    username: natsConnectionKeys.username,
    password: natsConnectionKeys.password,
    token: natsConnectionKeys.token,
  },
} as const;

export type NatsDestinationConfig = Infer<typeof natsDestinationSchema>;

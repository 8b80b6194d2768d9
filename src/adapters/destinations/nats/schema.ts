import type { Infer } from "../../../model/infer.ts";

/** Keys of a subject-broker destination (spec, "Subject-broker destination"). */
export const natsDestinationSchema = {
  type: "object",
  description: "Publishes to a subject, by default through JetStream with an acknowledgement.",
  required: ["servers", "subject"],
  properties: {
    servers: { type: "string", url: true, syntax: "notBlank", description: "Server URLs, comma-separated." },
    subject: { type: "string", syntax: "address", description: "Subject: a name or an address template." },
    subjectFrom: {
      type: "string",
      enum: ["aggregate_type", "topic", "key"],
      description: "Row column that holds the subject; wins over `subject`.",
    },
    jetStream: {
      type: "boolean",
      default: true,
      description:
        "`true`: publish through the stream layer and wait for its acknowledgement; `false`: core publish, unacknowledged.",
    },
    timeoutMs: {
      type: "integer",
      unit: "ms",
      exclusiveMinimum: 0,
      default: 30000,
      description: "Longest wait for a publish.",
    },
    username: { type: "string", description: "User name; needs `password`." },
    password: { type: "string", secret: true, description: "Password; needs `username`." },
    token: { type: "string", secret: true, description: "Token. Set a token or a user name, not both." },
  },
} as const;

export type NatsDestinationConfig = Infer<typeof natsDestinationSchema>;

import { BROKER_SOURCE_KINDS } from "../../adapters/kinds.ts";
import { httpSource } from "../../adapters/sources/http/kind.ts";
import { CONSUMPTIONS } from "../../model/rows.ts";
import { attributeHeadersSchema, filterSchema, transformSchema } from "./blocks.ts";
import { withCommonKeys } from "./entryKinds.ts";

const TOPIC = "Outbox topic that the relay writes; `{{ source }}` and `{{ eventType }}` render.";

/** Keys of every source (spec, "sources.<name> (common keys)"). */
const commonKeys = {
  consumption: {
    type: "string",
    enum: CONSUMPTIONS,
    default: "push",
    description: "`push`: the relay copies the rows into the outbox; `pull`: they wait in the inbox for a pull client.",
  },
  aggregateIdPath: {
    type: "string",
    syntax: "jsonPath",
    description: "JSONPath of the aggregate identifier; the relay writes it into the outbox `key`.",
  },
  keyScope: {
    type: "string",
    enum: ["shared", "source"],
    default: "shared",
    description:
      "`shared`: the outbox key is the aggregate identifier, and order spans all sources; `source`: it is `source:aggregate`, apart from other sources; set it at each source whose senders must not hold up others.",
  },
  eventTypePath: { type: "string", syntax: "jsonPath", description: "JSONPath of the event type." },
  transform: { ...transformSchema, description: "Runs before the row is stored." },
  filter: filterSchema,
  rateLimit: {
    type: "object",
    description: "Rate limit; HTTP sources only, ignored on other kinds.",
    properties: {
      requestsPerMinute: {
        type: "integer",
        minimum: 1,
        description: "Requests per minute for the whole source; more are answered 429.",
      },
    },
  },
} as const;

export const httpSourceKeys = {
  ...commonKeys,
  topic: { type: "string", syntax: "topicTemplate", default: "{{ eventType }}", description: TOPIC },
  idempotencyKeyPath: { type: "string", syntax: "jsonPath", description: "JSONPath of the idempotency key." },
} as const;

export const brokerSourceKeys = {
  ...commonKeys,
  topic: { type: "string", syntax: "topicTemplate", default: "{{ source }}", description: TOPIC },
  idempotencyKeyPath: {
    type: "string",
    syntax: "jsonPath",
    default: "$.id",
    description: "JSONPath of the idempotency key.",
  },
  attributeHeaders: attributeHeadersSchema,
  required: {
    type: "boolean",
    default: true,
    description: "`false`: the source's health component is shown and does not decide readiness.",
  },
} as const;

/** Section `sources`. */
export const sourcesSchema = {
  type: "object",
  default: {},
  description: "Where messages come from. The name is stored in the `source` column.",
  additionalProperties: {
    description: "A source.",
    kinds: {
      ...withCommonKeys({ http: httpSource }, httpSourceKeys),
      ...withCommonKeys(BROKER_SOURCE_KINDS, brokerSourceKeys),
    },
  },
} as const;

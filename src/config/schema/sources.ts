import { BROKER_SOURCE_KINDS } from "../../adapters/kinds.ts";
import { httpSource } from "../../adapters/sources/http/kind.ts";
import { CONSUMPTIONS } from "../../model/rows.ts";
import { withCommonKeys } from "../kinds.ts";
import { attributeHeadersSchema, filterSchema, transformSchema } from "./blocks.ts";

const TOPIC = "Outbox topic; may contain `{{ source }}` and `{{ eventType }}`.";

/** Keys of every source (spec, "sources.<name> (common keys)"). */
const commonKeys = {
  consumption: {
    type: "string",
    enum: CONSUMPTIONS,
    default: "push",
    description: "`push`: the relay copies rows into the outbox; `pull`: they wait for a pull client.",
  },
  aggregateIdPath: {
    type: "string",
    syntax: "jsonPath",
    description: "JSONPath of the aggregate id, the outbox `key`.",
  },
  keyScope: {
    type: "string",
    enum: ["shared", "source"],
    default: "shared",
    description:
      "Outbox key: `shared`: the aggregate id, ordered across all sources; `source`: `source:aggregate`, which no other source holds up.",
  },
  eventTypePath: { type: "string", syntax: "jsonPath", description: "JSONPath of the event type." },
  transform: { ...transformSchema, description: "Runs before the row is stored." },
  filter: filterSchema,
  rateLimit: {
    type: "object",
    description: "Rate limit; ignored on other kinds than HTTP.",
    properties: {
      requestsPerMinute: {
        type: "integer",
        minimum: 1,
        description: "Requests per minute of the whole source; then 429.",
      },
    },
  },
} as const;

const httpSourceKeys = {
  ...commonKeys,
  topic: { type: "string", syntax: "topicTemplate", default: "{{ eventType }}", description: TOPIC },
  idempotencyKeyPath: { type: "string", syntax: "jsonPath", description: "JSONPath of the idempotency key." },
} as const;

const brokerSourceKeys = {
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
    description: "`false`: the source does not decide readiness.",
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

import { OVERLOADED, UNSUPPORTED_ENCODING } from "../admission.ts";
import { TRANSFORM_UNAVAILABLE } from "../inboxRoutes.ts";
import { object } from "./object.ts";
import { PULL_SCHEMAS } from "./pullSchemas.ts";
import type { Schema } from "./types.ts";

/** Text that every database can hold. */
export const STORABLE = "^[^\\u0000]*$";
const TEXT = { type: ["string", "null"], pattern: STORABLE };

const REPLAY_FILTERS = ["state", "ids", "topic", "topics", "destination", "createdAfter", "createdBefore"];

/** The bodies of the answers, exactly as the specification's tables have them. */
export const SCHEMAS = {
  Error: object({ error: { type: "string", description: "What is wrong, for the caller." } }),
  BodyTooLarge: object({ error: { type: "string", pattern: "^Request body exceeds [0-9]+ bytes$" } }),
  InternalError: object({ error: { const: "Internal error" } }),
  InvalidRequest: object({
    error: { type: "string", pattern: "^(Invalid request: |A replay needs at least one filter|The body is not what)" },
  }),
  ShuttingDown: object({ error: { const: "Service is shutting down" } }),
  StorageFailed: object({ error: { const: "Storage failed" } }),
  TooManyBodies: object({ error: { const: OVERLOADED } }),
  TransformUnavailable: object({ error: { const: TRANSFORM_UNAVAILABLE } }),
  UnsupportedEncoding: object({ error: { const: UNSUPPORTED_ENCODING } }),
  Stored: object({
    messageId: { type: "string", format: "uuid", description: "The `id` of the new inbox row." },
  }),
  Filtered: object({ status: { const: "filtered" } }),
  Duplicate: object({ status: { const: "duplicate" } }),
  Liveness: object({
    status: { const: "healthy" },
    components: object({ process: object({ status: { const: "up" } }) }),
  }),
  Readiness: object({
    status: {
      enum: ["healthy", "unhealthy"],
      description: "`unhealthy` when a component that decides readiness is down.",
    },
    components: {
      type: "object",
      description: "Every component of this process by name.",
      additionalProperties: object({ status: { enum: ["up", "down"] } }),
    },
  }),
  TransformTestRequest: {
    type: "object",
    description: "Fields that are not listed are ignored; `null` in an optional field counts as absent.",
    required: ["expression", "payload"],
    properties: {
      expression: { type: "string", description: "A JSONata expression." },
      payload: { description: "The input document `$`: any JSON value." },
      mockTopic: { type: ["string", "null"], default: "test.topic", description: "Value of `$topic`." },
      mockSource: { type: ["string", "null"], description: "Value of `$source`; unbound when absent." },
      timeoutMs: {
        type: ["integer", "null"],
        minimum: 1,
        default: 100,
        description: "Longest evaluation in ms; `admin.maxTransformTimeoutMs` bounds it.",
      },
    },
  },
  TransformTestResult: object({
    success: { const: true },
    result: { description: "What the expression gave: any JSON value." },
    context: {
      ...object({
        messageId: { type: "string", format: "uuid", description: "Random." },
        topic: { type: "string" },
        attempt: { const: 0 },
        timestamp: { type: "string", format: "date-time" },
      }),
      description: "The variables that were bound.",
    },
  }),
  TransformTestFailure: object({
    success: { const: false },
    error: { type: "string", description: "What is wrong, for the author of the request." },
  }),
  ReplayRequest: {
    type: "object",
    description: "All filters that are given must hold; at least one is required. `null` counts as absent.",
    anyOf: REPLAY_FILTERS.map((name) => ({ required: [name], properties: { [name]: { not: { type: "null" } } } })),
    properties: {
      state: {
        type: ["string", "null"],
        enum: ["sent", "dead", null],
        description: "Only rows that were delivered (`sent`), or only those that were given up (`dead`). Absent: both.",
      },
      ids: { type: ["array", "null"], items: { type: "string", format: "uuid" }, description: "Only these rows." },
      topic: { ...TEXT, description: "Only rows with this topic." },
      topics: {
        type: ["array", "null"],
        items: { type: "string", pattern: STORABLE },
        description: "Only rows with one of these topics.",
      },
      destination: {
        type: ["string", "null"],
        description: "Only rows whose topic the routes send to this destination (the first matching route counts).",
      },
      createdAfter: {
        type: ["string", "null"],
        format: "date-time",
        description: "Only rows created after this instant.",
      },
      createdBefore: {
        type: ["string", "null"],
        format: "date-time",
        description: "Only rows created before this instant.",
      },
    },
  },
  ReplayResult: object({ moved: { type: "integer", minimum: 0, description: "Rows that are `pending` again." } }),
  ...PULL_SCHEMAS,
} as const satisfies Readonly<Record<string, Schema>>;

export type SchemaName = keyof typeof SCHEMAS;

/** A schema by its name. */
export function ref(name: SchemaName): Schema {
  return { $ref: `#/components/schemas/${name}` };
}

import { DEFAULT_LIMITS } from "../../core/transform/limits.ts";
import { boolean, integer, ms, text } from "../../model/schema.ts";
/** Blocks and keys that several sections share (spec, "Transform block", "Header filter", "attributeHeaders"). */

export const transformSchema = {
  type: "object",
  required: ["expression"],
  description: "Transform block.",
  properties: {
    expression: text("JSONata expression, compiled at startup.", { syntax: "expression" }),
    timeoutMs: ms("Longest evaluation.", { exclusiveMinimum: 0, default: DEFAULT_LIMITS.timeoutMs }),
    maxDepth: integer("Deepest recursion.", { minimum: 1, default: DEFAULT_LIMITS.maxDepth }),
    onError: text("`Fail`: retry the delivery, reject the receipt; `Skip`: pass the input on; `Dead`: dead at once.", {
      enum: ["Fail", "Skip", "Dead"],
      default: "Fail",
    }),
  },
} as const;

const filterRulesSchema = {
  type: "array",
  default: [],
  items: {
    type: "object",
    required: ["header"],
    description: "A rule: `header` and exactly one of `equals`, `in`, `matches`, `exists`.",
    properties: {
      header: text("Header name, in any letter case.", { syntax: "notBlank" }),
      equals: text("Exact value."),
      in: {
        type: "array",
        items: { type: "string" },
        minItems: 1,
        description: "One of these values.",
      },
      matches: text("Topic glob that the value matches.", { syntax: "topicPattern" }),
      exists: boolean("`true`: the header is present. `false` is refused."),
    },
  },
} as const;

export const filterSchema = {
  type: "object",
  description: "A message that does not pass leaves no row.",
  properties: {
    require: { ...filterRulesSchema, description: "Every rule must match." },
    exclude: { ...filterRulesSchema, description: "No rule may match; the keys of a rule are those of `require`." },
  },
} as const;

export const attributeHeadersSchema = {
  type: "object",
  default: {},
  description: "Headers that carry attributes of a message.",
  properties: {
    idempotencyKey: text("Read before `idempotencyKeyPath`.", { syntax: "notBlank", default: "x-idempotency-key" }),
    aggregateId: text("Read after `aggregateIdPath`.", { syntax: "notBlank", default: "x-aggregate-id" }),
    eventType: text("Read after `eventTypePath`.", { syntax: "notBlank", default: "x-event-type" }),
  },
} as const;

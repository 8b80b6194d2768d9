/** Blocks and keys that several sections share (spec, "Transform block", "Header filter", "attributeHeaders"). */

export const transformSchema = {
  type: "object",
  required: ["expression"],
  description: "Transform block.",
  properties: {
    expression: {
      type: "string",
      syntax: "expression",
      description: "JSONata expression, compiled at startup.",
    },
    timeoutMs: {
      type: "integer",
      unit: "ms",
      exclusiveMinimum: 0,
      default: 100,
      description: "Longest evaluation.",
    },
    maxDepth: { type: "integer", minimum: 1, default: 100, description: "Deepest recursion." },
    onError: {
      type: "string",
      enum: ["Fail", "Skip", "Dead"],
      default: "Fail",
      description: "`Fail`: retry the delivery, reject the receipt; `Skip`: pass the input on; `Dead`: dead at once.",
    },
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
      header: { type: "string", syntax: "notBlank", description: "Header name, in any letter case." },
      equals: { type: "string", description: "Exact value." },
      in: {
        type: "array",
        items: { type: "string" },
        minItems: 1,
        description: "One of these values.",
      },
      matches: { type: "string", syntax: "topicPattern", description: "Topic glob that the value matches." },
      exists: { type: "boolean", description: "`true`: the header is present. `false` is refused." },
    },
  },
} as const;

export const filterSchema = {
  type: "object",
  description: "Header filter: a message that does not pass leaves no row.",
  properties: {
    require: { ...filterRulesSchema, description: "Every rule must match." },
    exclude: { ...filterRulesSchema, description: "No rule may match." },
  },
} as const;

export const attributeHeadersSchema = {
  type: "object",
  default: {},
  description: "Headers that carry attributes of a message.",
  properties: {
    idempotencyKey: {
      type: "string",
      syntax: "notBlank",
      default: "x-idempotency-key",
      description: "Read before `idempotencyKeyPath`.",
    },
    aggregateId: {
      type: "string",
      syntax: "notBlank",
      default: "x-aggregate-id",
      description: "Read after `aggregateIdPath`.",
    },
    eventType: {
      type: "string",
      syntax: "notBlank",
      default: "x-event-type",
      description: "Read after `eventTypePath`.",
    },
  },
} as const;

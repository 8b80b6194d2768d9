import { block, boolean, integer, list, ms, section, text } from "../../model/schema.ts";
import { DEFAULT_LIMITS } from "../../ports/evaluator.ts";
/** Blocks and keys that several sections share (spec, "Transform block", "Header filter", "attributeHeaders"). */

export const transformSchema = block("Transform block.", ["expression"], {
  expression: text("JSONata.", { syntax: "expression" }),
  timeoutMs: ms("Longest evaluation.", { exclusiveMinimum: 0, default: DEFAULT_LIMITS.timeoutMs }),
  maxDepth: integer("Deepest recursion.", { minimum: 1, default: DEFAULT_LIMITS.maxDepth }),
  onError: text(
    "`Fail`: retry the delivery, reject the receipt; `Skip`: pass the input through; `Dead`: dead at once.",
    {
      enum: ["Fail", "Skip", "Dead"],
      default: "Fail",
    },
  ),
});

const conditionKeys = {
  ...transformSchema.properties,
  onError: text(
    "If it fails, each attempt evaluates it again (`Fail`), or the delivery is sent (`Skip`) or dead (`Dead`).",
    { enum: ["Fail", "Skip", "Dead"], default: "Fail" },
  ),
} as const;

/** A transform block whose expression decides; it may be the text of its expression. */
export const conditionSchema = {
  ...block("[Condition](transforms.md#conditions) in JSONata, such as `amount > 10`.", ["expression"], conditionKeys),
  orKey: "expression",
} as const;

const filterRule = block("A rule: `header` and exactly one of `equals`, `in`, `matches`, `exists`.", ["header"], {
  header: text("Header name, in any letter case.", { syntax: "notBlank" }),
  equals: text("Exact value."),
  in: list("One of these values.", { type: "string" }, { minItems: 1 }),
  matches: text("Topic glob that the value matches.", { syntax: "topicPattern" }),
  exists: boolean("`true`: the header is present. `false` is refused."),
});

export const filterSchema = block("A message that does not pass leaves no row.", [], {
  require: list("Every rule must match.", filterRule, { default: [] }),
  exclude: list("No rule may match; keys as in `require`.", filterRule, { default: [] }),
});

export const attributeHeadersSchema = section("Headers with attributes.", {
  idempotencyKey: text("Read before `idempotencyKeyPath`.", { syntax: "notBlank", default: "x-idempotency-key" }),
  aggregateId: text("Read after `aggregateIdPath`.", { syntax: "notBlank", default: "x-aggregate-id" }),
  eventType: text("Read after `eventTypePath`.", { syntax: "notBlank", default: "x-event-type" }),
});

import { DESTINATION_KINDS } from "../../adapters/kinds.ts";
import { block, integer, list, ms, number, text } from "../../model/schema.ts";
import { withCommonKeys } from "../kinds.ts";
import { transformSchema } from "./blocks.ts";

/** A row waits no longer for its next attempt: anything above would be a slip, and timers stay far from their limit. */
export const MAX_RETRY_WAIT_MS = 7 * 24 * 3_600_000;

const rateLimitSchema = block("For all replicas together.", ["perSecond"], {
  perSecond: number("Average attempts per second, such as `0.5`.", {
    exclusiveMinimum: 0,
    maximum: 100000,
  }),
  burst: integer("Most attempts in any second, plus a fifth of `perSecond`; at least `perSecond`, rounded up.", {
    minimum: 1,
    maximum: 1000000,
    defaultText: "`perSecond`, rounded up",
  }),
});

const retrySchema = block(
  "[Waits](destinations.md#retries): `schedule`, or `baseDelayMs * factor^attempt` up to `maxDelayMs`.",
  [],
  {
    schedule: list(
      "Wait after each failure, up to `7d` each; the last repeats.",
      { type: "string", duration: true },
      { minItems: 1 },
    ),
    jitter: number("Largest random share added to a wait.", { minimum: 0, maximum: 1, default: 0.25 }),
    baseDelayMs: ms("Wait after the first failure.", {
      minimum: 1,
      maximum: MAX_RETRY_WAIT_MS,
      defaultText: "`outbox.retryBaseDelayMs`",
    }),
    factor: number("Growth of each further wait.", { minimum: 1, maximum: 1000, defaultText: "`2`" }),
    maxDelayMs: ms("Longest wait, jitter included.", {
      minimum: 1,
      maximum: MAX_RETRY_WAIT_MS,
      defaultText: "`60000`",
    }),
  },
);

const circuitBreakerSchema = block(
  "[Stops deliveries](destinations.md#limits-circuit-breakers-and-pauses) while the receiver is down; `{}` enables it.",
  [],
  {
    failureRatio: number("Share of failed attempts in `windowMs` at which it opens.", {
      exclusiveMinimum: 0,
      maximum: 1,
      default: 0.5,
    }),
    minimumAttempts: integer("Fewest attempts in `windowMs` to judge.", { minimum: 1, default: 10 }),
    windowMs: ms("Window of counted attempts.", { exclusiveMinimum: 0, default: 30000 }),
    openMs: ms("Wait before the first probe; doubles after each failed probe.", { exclusiveMinimum: 0, default: 5000 }),
    maxOpenMs: ms("Longest wait between probes; at least `openMs`.", { exclusiveMinimum: 0, default: 60000 }),
  },
);

const cloudEventsSchema = block("Sends [CloudEvents](webhooks/sending.md#cloudevents).", ["source"], {
  mode: text("`binary` (attributes as headers) or `structured` (JSON envelope).", {
    enum: ["binary", "structured"],
    default: "binary",
  }),
  source: text("Attribute `source`, such as `/shop/orders`.", {
    syntax: "address",
  }),
  type: text("Attribute `type`.", { syntax: "address", default: "{{ topic }}" }),
  subject: text("Attribute `subject`; omitted if empty.", { syntax: "address", default: "{{ key }}" }),
});

/** Keys of every destination (spec, "destinations.<name> (common keys)"). */
const commonDestinationKeys = {
  headers: {
    type: "object",
    additionalProperties: { type: "string" },
    default: {},
    description: "Static headers; a row's header of the same name wins.",
  },
  cloudEvents: cloudEventsSchema,
  transform: { ...transformSchema, description: "Runs after the route's." },
  concurrency: integer("Most deliveries in flight per process, within `outbox.concurrency`.", {
    minimum: 1,
    defaultText: "`outbox.concurrency`",
  }),
  rateLimit: rateLimitSchema,
  retry: retrySchema,
  maxAttempts: integer("Replaces a `max_attempts` of 5, the column's default.", {
    minimum: 1,
    maximum: 2147483647,
    defaultText: "the row's `max_attempts`",
  }),
  circuitBreaker: circuitBreakerSchema,
} as const;

export const destinationsSchema = {
  type: "object",
  default: {},
  description: "Where messages go, by name.",
  additionalProperties: {
    description: "A destination.",
    kinds: withCommonKeys(DESTINATION_KINDS, commonDestinationKeys),
  },
} as const;

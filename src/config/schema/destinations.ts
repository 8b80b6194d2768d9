import { DESTINATION_KINDS } from "../../adapters/kinds.ts";
import { withCommonKeys } from "../kinds.ts";
import { transformSchema } from "./blocks.ts";

/** A row waits no longer for its next attempt: anything above would be a slip, and timers stay far from their limit. */
export const MAX_RETRY_WAIT_MS = 7 * 24 * 3_600_000;

const rateLimitSchema = {
  type: "object",
  required: ["perSecond"],
  description: "Most deliveries per second of all replicas together. Waiting rows hold no slot.",
  properties: {
    perSecond: {
      type: "number",
      exclusiveMinimum: 0,
      maximum: 100000,
      description: "Average attempts per second; `0.5` is one every two seconds.",
    },
    burst: {
      type: "integer",
      minimum: 1,
      maximum: 1000000,
      defaultText: "`perSecond`, rounded up",
      description: "Most attempts in any second, plus a fifth of `perSecond`; at least `perSecond`, rounded up.",
    },
  },
} as const;

const retrySchema = {
  type: "object",
  description:
    "Waits after failures: either `schedule`, or a backoff of `baseDelayMs * factor^attempt` up to `maxDelayMs`. Wins over `outbox.retryBaseDelayMs`.",
  properties: {
    schedule: {
      type: "array",
      items: { type: "string", duration: true },
      minItems: 1,
      description:
        "Waits after the first failure, the second, and so on, each up to `7d`; the last repeats. `maxAttempts` limits the attempts.",
    },
    jitter: {
      type: "number",
      minimum: 0,
      maximum: 1,
      default: 0.25,
      description: "Largest random share added to a wait.",
    },
    baseDelayMs: {
      type: "integer",
      unit: "ms",
      minimum: 1,
      maximum: MAX_RETRY_WAIT_MS,
      defaultText: "`outbox.retryBaseDelayMs`",
      description: "Wait after the first failure.",
    },
    factor: {
      type: "number",
      minimum: 1,
      maximum: 1000,
      defaultText: "`2`",
      description: "Growth of each further wait.",
    },
    maxDelayMs: {
      type: "integer",
      unit: "ms",
      minimum: 1,
      maximum: MAX_RETRY_WAIT_MS,
      defaultText: "`60000`",
      description: "Longest wait, jitter included.",
    },
  },
} as const;

const circuitBreakerSchema = {
  type: "object",
  description:
    "Holds back all rows of a destination while its receiver is down: no attempt is made or counted until a probe succeeds. `{}` switches it on.",
  properties: {
    failureRatio: {
      type: "number",
      exclusiveMinimum: 0,
      maximum: 1,
      default: 0.5,
      description: "Share of attempts in `windowMs` failed by the receiver's fault at which it opens.",
    },
    minimumAttempts: {
      type: "integer",
      minimum: 1,
      default: 10,
      description: "Fewest attempts in `windowMs` to judge.",
    },
    windowMs: {
      type: "integer",
      unit: "ms",
      exclusiveMinimum: 0,
      default: 30000,
      description: "Window of counted attempts.",
    },
    openMs: {
      type: "integer",
      unit: "ms",
      exclusiveMinimum: 0,
      default: 5000,
      description: "Wait before the first probe; doubles after each failed probe.",
    },
    maxOpenMs: {
      type: "integer",
      unit: "ms",
      exclusiveMinimum: 0,
      default: 60000,
      description: "Longest wait between probes; at least `openMs`.",
    },
  },
} as const;

/** Keys of every destination (spec, "destinations.<name> (common keys)"). */
const commonDestinationKeys = {
  headers: {
    type: "object",
    additionalProperties: { type: "string" },
    default: {},
    description: "Static headers; a row's header of the same name wins.",
  },
  transform: { ...transformSchema, description: "Runs after the route's transform, at each attempt." },
  concurrency: {
    type: "integer",
    minimum: 1,
    defaultText: "`outbox.concurrency`",
    description: "Most deliveries in flight per process, within `outbox.concurrency`.",
  },
  rateLimit: rateLimitSchema,
  retry: retrySchema,
  maxAttempts: {
    type: "integer",
    minimum: 1,
    maximum: 2147483647,
    defaultText: "the row's `max_attempts`",
    description:
      "Attempts until a row is dead. Applies to rows whose `max_attempts` is 5, the column's default; others keep theirs.",
  },
  circuitBreaker: circuitBreakerSchema,
} as const;

/** Section `destinations`. */
export const destinationsSchema = {
  type: "object",
  default: {},
  description: "Where messages go, by name.",
  additionalProperties: {
    description: "A destination.",
    kinds: withCommonKeys(DESTINATION_KINDS, commonDestinationKeys),
  },
} as const;

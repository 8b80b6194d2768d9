import { DESTINATION_KINDS } from "../../adapters/kinds.ts";
import { transformSchema } from "./blocks.ts";
import { withCommonKeys } from "./entryKinds.ts";

/** A row waits no longer for its next attempt: anything above would be a slip, and timers stay far from their limit. */
export const MAX_RETRY_WAIT_MS = 7 * 24 * 3_600_000;

const rateLimitSchema = {
  type: "object",
  required: ["perSecond"],
  description: "Most deliveries per second, of all replicas together. Waiting rows hold no slot.",
  properties: {
    perSecond: {
      type: "number",
      exclusiveMinimum: 0,
      maximum: 100000,
      description: "Attempts per second in the long run; `0.5` is one every two seconds.",
    },
    burst: {
      type: "integer",
      minimum: 1,
      maximum: 1000000,
      defaultText: "`perSecond`, rounded up",
      description:
        "Most attempts in any one second, and a fifth of `perSecond` more; not less than `perSecond`, rounded up.",
    },
  },
} as const;

const retrySchema = {
  type: "object",
  description:
    "How long rows wait after a failure. Either `schedule`, or a backoff of `baseDelayMs * factor^attempt` up to `maxDelayMs`. Wins over `outbox.retryBaseDelayMs` and its ceiling of 60 seconds.",
  properties: {
    schedule: {
      type: "array",
      items: { type: "string", duration: true },
      minItems: 1,
      description:
        "Waits after the first failure, the second, and so on; the last one repeats. Each up to `7d`. It says nothing about how many attempts there are: see `maxAttempts`.",
    },
    jitter: {
      type: "number",
      minimum: 0,
      maximum: 1,
      default: 0.25,
      description: "A random share of the wait, up to this, is added to it.",
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
      description: "Each further wait is so many times as long.",
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
    "Holds all rows of a destination back while its receiver is down: no attempt is made or counted, until a single probe succeeds. An empty block (`{}`) switches it on.",
  properties: {
    failureRatio: {
      type: "number",
      exclusiveMinimum: 0,
      maximum: 1,
      default: 0.5,
      description: "Opens when this share of the attempts in `windowMs` failed by the receiver's fault.",
    },
    minimumAttempts: {
      type: "integer",
      minimum: 1,
      default: 10,
      description: "Attempts in `windowMs` below which the share says nothing.",
    },
    windowMs: {
      type: "integer",
      unit: "ms",
      exclusiveMinimum: 0,
      default: 30000,
      description: "Time over which attempts count.",
    },
    openMs: {
      type: "integer",
      unit: "ms",
      exclusiveMinimum: 0,
      default: 5000,
      description: "Wait before the first probe; doubles with each probe that fails.",
    },
    maxOpenMs: {
      type: "integer",
      unit: "ms",
      exclusiveMinimum: 0,
      default: 60000,
      description: "Longest wait between probes; not less than `openMs`.",
    },
  },
} as const;

/** Keys of every destination (spec, "destinations.<name> (common keys)"). */
export const commonDestinationKeys = {
  headers: {
    type: "object",
    additionalProperties: { type: "string" },
    default: {},
    description: "Static headers on every message; a header of the row wins over one of the same name.",
  },
  transform: { ...transformSchema, description: "Runs after the route's transform, at each delivery attempt." },
  concurrency: {
    type: "integer",
    minimum: 1,
    defaultText: "`outbox.concurrency`",
    description: "Most deliveries in flight in one process; above `outbox.concurrency` it has no effect.",
  },
  rateLimit: rateLimitSchema,
  retry: retrySchema,
  maxAttempts: {
    type: "integer",
    minimum: 1,
    maximum: 2147483647,
    defaultText: "the row's `max_attempts`",
    description:
      "Attempts until a row is dead. Wins over the row's `max_attempts` where that is 5, the column's default; any other value was chosen for the row and stays in force.",
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

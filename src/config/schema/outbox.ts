import { captureSchema } from "../../adapters/capture/schema.ts";

/** Section `outbox` (spec, "outbox"). */
export const outboxSchema = {
  type: "object",
  default: {},
  description: "The poller: claims outbox rows and delivers them.",
  properties: {
    pollIntervalMs: {
      type: "integer",
      unit: "ms",
      exclusiveMinimum: 0,
      default: 100,
      description: "Wait between claim cycles.",
    },
    batchSize: { type: "integer", minimum: 1, default: 100, description: "Most rows per claim." },
    concurrency: { type: "integer", minimum: 1, default: 8, description: "Most deliveries in flight per process." },
    retryBaseDelayMs: {
      type: "integer",
      unit: "ms",
      minimum: 0,
      default: 1000,
      description: "A retry waits `retryBaseDelayMs * 2^attempt` plus a random 0 to 25 percent, at most 60 s.",
    },
    maxAttempts: {
      type: "integer",
      minimum: 1,
      maximum: 2147483647,
      default: 5,
      description: "`max_attempts` of rows the service creates.",
    },
    claimTimeoutMs: {
      type: "integer",
      unit: "ms",
      minimum: 0,
      default: 300000,
      description: "A claim older than this returns to `pending`. Set it above the slowest delivery.",
    },
    pendingGaugeIntervalMs: {
      type: "integer",
      unit: "ms",
      minimum: 0,
      default: 5000,
      description: "Shortest interval of the query for the pending gauge.",
    },
    shutdownTimeoutMs: {
      type: "integer",
      unit: "ms",
      minimum: 0,
      default: 30000,
      description: "Longest wait for deliveries in flight at shutdown.",
    },
    capture: captureSchema,
  },
} as const;

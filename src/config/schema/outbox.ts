import { captureSchema } from "../../adapters/capture/schema.ts";
import { integer, ms, section, text } from "../../model/schema.ts";

/** Section `outbox` (spec, "outbox"). */
export const outboxSchema = section("The poller: claims outbox rows and delivers them.", {
  pollIntervalMs: ms("Wait between claim cycles.", { exclusiveMinimum: 0, default: 100 }),
  batchSize: integer("Most rows per claim.", { minimum: 1, default: 100 }),
  concurrency: integer("Most deliveries in flight per process.", { minimum: 1, default: 8 }),
  retryBaseDelayMs: ms("A retry waits `retryBaseDelayMs * 2^attempt`, plus up to 25 % at random, at most 60 s.", {
    minimum: 0,
    default: 1000,
  }),
  history: text("Which attempts are kept with their row: none, those that failed, or every one.", {
    enum: ["off", "failures", "all"],
    default: "failures",
  }),
  maxAttempts: integer("`max_attempts` of rows the service creates.", {
    minimum: 1,
    maximum: 2147483647,
    default: 5,
  }),
  claimTimeoutMs: ms("Longest claim. Set it above the slowest delivery.", { minimum: 0, default: 300000 }),
  pendingGaugeIntervalMs: ms("Shortest interval of the query for the pending gauge.", { minimum: 0, default: 5000 }),
  shutdownTimeoutMs: ms("Longest wait for deliveries in flight at shutdown.", { minimum: 0, default: 30000 }),
  capture: captureSchema,
});

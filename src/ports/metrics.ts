import type { Refusal } from "../model/refusals.ts";
import type { RELAY_DEATHS } from "../model/rows.ts";
import type { SlotStatus } from "./capture.ts";
import type { BreakerState, DestinationState } from "./destinationStore.ts";

/** A method per metric (names and labels: design, "Metrics"). Durations in seconds. */
export interface Metrics {
  outboxMessages(status: "sent" | "failed" | "dead", count: number): void;
  outboxPending(count: number): void;
  outboxOldestPendingAge(seconds: number): void;
  outboxReclaimed(count: number): void;
  outboxProcessError(): void;
  /** Times that the database refused to let a row be claimed, or to store its outcome. */
  outboxRowRefused(count: number): void;
  outboxProcessingDuration(seconds: number): void;
  outboxPublishDuration(destinationType: string, seconds: number): void;
  outboxDestinationMessage(destination: string, outcome: "sent" | "failed" | "dead"): void;
  outboxParked(destination: string): void;
  /** Messages that became a delivery for each destination of their list. */
  messagesExpanded(count: number): void;
  /** Deliveries that were not made, for their condition was false. */
  deliverySkipped(destination: string): void;
  /** Messages of lists with a dead delivery and a sent one. */
  partlyDeadMessages(count: number): void;
  /** Claimed rows of this destination that wait for or are in delivery, changed by `delta`. */
  outboxQueueDepth(destination: string, delta: number): void;
  destinationState(destination: string, state: DestinationState): void;
  destinationInFlight(destination: string, count: number): void;
  destinationBacklog(destination: string, rows: number, oldestSeconds: number): void;
  /** Pending rows that may be delivered now: due, and the destination does not hold them back. */
  destinationDue(destination: string, rows: number): void;
  destinationRateLimited(destination: string, seconds: number): void;
  breakerTransition(destination: string, to: BreakerState): void;
  deliveryLatency(seconds: number): void;
  /** From the receipt of a message to its acknowledgement. @param traceId of the delivery, if it is sampled */
  messageDelivery(destination: string, seconds: number, traceId?: string): void;
  httpPublishResponse(statusClass: "2xx" | "3xx" | "4xx" | "5xx" | "error"): void;
  transformFailure(strategy: "Fail" | "Skip" | "Dead"): void;
  inboxMessages(status: "new" | "forwarded" | "duplicate", count: number): void;
  inboxRelayError(): void;
  inboxRejection(
    reason:
      | "extraction_failed"
      | "transform_failed"
      | "transform_unavailable"
      | "storage_failed"
      | "unauthorized"
      | "rate_limited",
  ): void;
  inboxDead(
    reason: keyof typeof RELAY_DEATHS | "extraction_failed" | "transform_failed" | "storage_failed" | "pull",
  ): void;
  inboxRefused(source: string, reason: Refusal): void;
  /** A message of a source with a configured place for the aggregate id has none there. */
  inboxWithoutAggregateId(source: string): void;
  inboxFiltered(): void;
  /** Entries of the journal that were not kept. */
  journalDropped(count: number): void;
  inboxOldestPendingAge(seconds: number): void;
  inboxUnrelayed(rows: number): void;
  claimDuration(component: string, seconds: number): void;
  claimRows(component: string, rows: number): void;
  claimsLost(component: string, count: number): void;
  blockedKeys(count: number): void;
  parkedRows(count: number): void;
  componentUp(component: string, up: boolean): void;
  cleanupDeleted(table: string, count: number): void;
  cleanupDuration(table: string, seconds: number): void;
  cleanupLastRun(table: string, unixSeconds: number): void;
  captureLag(seconds: number): void;
  /** @param retained log that the server keeps for the slot @param unconfirmed log that the capture has not seen */
  replicationSlotLag(retained: number, unconfirmed: number): void;
  /** Whether the server still has the log that the slot needs (`wal_status` of `pg_replication_slots`). */
  replicationSlotStatus(status: SlotStatus): void;
}

import { ROLES, type Role } from "../model/roles.ts";
import { SLOT_STATUSES } from "../ports/capture.ts";
import { DESTINATION_STATES } from "../ports/destinationStore.ts";
import type { MetricDefinition } from "./series.ts";

/** A metric of the service, as the code makes it and the documentation lists it. */
export interface ServiceMetric extends MetricDefinition {
  /** Only processes with one of these roles show it. */
  readonly roles: readonly Role[];
}

const EVERY = ROLES;

/** From a database round trip on the same machine to a receiver's time limit. */
const CALL_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30] as const;
/** From a message that nothing holds up to one that waits out retries or an outage. */
const LATENCY_SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600] as const;
const CLEANUP_SECONDS = [0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800] as const;
/** The first bucket counts the claims that found nothing. */
const ROWS = [0, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500] as const;

/**
 * Every metric of the service itself, in the order of the metrics page; `docs/` is checked against this list. Beside them stand
 * prom-client's process and event-loop metrics under their usual names (`process_*`, `nodejs_*`), without the prefix, so that common
 * dashboards find them. No label carries a message, a key or a topic.
 */
export const METRICS = {
  info: {
    name: "svc_info",
    type: "gauge",
    help: "Always 1; the label tells the version of the service.",
    labels: { version: [] },
    roles: EVERY,
  },
  roleInfo: {
    name: "svc_role_info",
    type: "gauge",
    help: "Always 1, once for each role of the process.",
    labels: { role: ROLES },
    roles: EVERY,
  },
  uptime: {
    name: "svc_uptime_seconds",
    type: "gauge",
    help: "Seconds since the process started.",
    labels: {},
    roles: EVERY,
  },
  componentUp: {
    name: "svc_component_up",
    type: "gauge",
    help: "1 when the health component is up, 0 when it is down.",
    labels: { component: [] },
    roles: EVERY,
  },
  outboxMessages: {
    name: "svc_outbox_messages_total",
    type: "counter",
    help: "Outbox deliveries by their end: sent, failed (will be tried again) or dead.",
    labels: { status: ["sent", "failed", "dead"] },
    roles: ["poller"],
  },
  outboxPending: {
    name: "svc_outbox_messages_pending",
    type: "gauge",
    help: "Outbox rows in state pending, at most outbox.pendingGaugeIntervalMs old.",
    labels: {},
    roles: ["poller"],
  },
  outboxOldestPendingAge: {
    name: "svc_outbox_oldest_pending_age_seconds",
    type: "gauge",
    help: "Age of the oldest due pending outbox row; 0 when there is none.",
    labels: {},
    roles: ["poller"],
  },
  outboxReclaimed: {
    name: "svc_outbox_messages_reclaimed_total",
    type: "counter",
    help: "Outbox rows returned to pending because the lease of their claim ran out.",
    labels: {},
    roles: ["poller"],
  },
  outboxProcessErrors: {
    name: "svc_outbox_process_errors_total",
    type: "counter",
    help: "Poller passes that failed, for example because the database did not answer.",
    labels: {},
    roles: ["poller"],
  },
  outboxRowsRefused: {
    name: "svc_outbox_rows_refused_total",
    type: "counter",
    help: "Times that the database refused to let a row be claimed, or to store its outcome (a trigger or constraint of the owner).",
    labels: {},
    roles: ["poller"],
  },
  outboxProcessingDuration: {
    name: "svc_outbox_processing_duration_seconds",
    type: "histogram",
    help: "Time from the claim of an outbox row to its settlement.",
    labels: {},
    roles: ["poller"],
    buckets: CALL_SECONDS,
  },
  outboxPublishDuration: {
    name: "svc_outbox_publish_duration_seconds",
    type: "histogram",
    help: "Time of one publish, acknowledgement included.",
    labels: { destination_type: [] },
    roles: ["poller"],
    buckets: CALL_SECONDS,
  },
  outboxDestinationMessages: {
    name: "svc_outbox_destination_messages_total",
    type: "counter",
    help: "Deliveries by destination and their end: sent, failed or dead.",
    labels: { destination: [], outcome: ["sent", "failed", "dead"] },
    roles: ["poller"],
  },
  outboxParked: {
    name: "svc_outbox_parked_total",
    type: "counter",
    help: "Deliveries that failed for good and parked their row (onExhausted: park of the route); counted as failed too.",
    labels: { destination: [] },
    roles: ["poller"],
  },
  outboxQueueDepth: {
    name: "svc_outbox_queue_depth",
    type: "gauge",
    help: "Claimed rows of this replica that wait for or are in delivery.",
    labels: { destination: [] },
    roles: ["poller"],
  },
  destinationState: {
    name: "svc_destination_state",
    type: "gauge",
    help: "1 for the present state of the destination, 0 for the others.",
    labels: { destination: [], state: DESTINATION_STATES },
    roles: ["poller"],
  },
  destinationInFlight: {
    name: "svc_destination_in_flight",
    type: "gauge",
    help: "Deliveries of this replica to the destination that are under way.",
    labels: { destination: [] },
    roles: ["poller"],
  },
  destinationBacklog: {
    name: "svc_destination_backlog",
    type: "gauge",
    help: "Outbox rows in state pending that go to the destination.",
    labels: { destination: [] },
    roles: ["poller"],
  },
  destinationOldestAge: {
    name: "svc_destination_oldest_age_seconds",
    type: "gauge",
    help: "Age of the oldest due pending outbox row of the destination; 0 when there is none.",
    labels: { destination: [] },
    roles: ["poller"],
  },
  destinationRateLimited: {
    name: "svc_destination_rate_limited_seconds_total",
    type: "counter",
    help: "Time for which claimed rows of this replica waited for the rate limit of the destination.",
    labels: { destination: [] },
    roles: ["poller"],
  },
  breakerTransitions: {
    name: "svc_destination_breaker_transitions_total",
    type: "counter",
    help: "Times that this replica opened or closed the circuit breaker of the destination for all replicas.",
    labels: { destination: [], to: ["open", "closed"] },
    roles: ["poller"],
  },
  blockedKeys: {
    name: "svc_blocked_keys",
    type: "gauge",
    help: "Keys whose first unfinished row waits for its retry and holds back the rows behind it.",
    labels: {},
    roles: ["poller"],
  },
  parkedRows: {
    name: "svc_parked_rows",
    type: "gauge",
    help: "Parked outbox rows, which wait for svc parked retry or discard, at most outbox.pendingGaugeIntervalMs old.",
    labels: {},
    roles: ["poller"],
  },
  deliveryLatency: {
    name: "svc_delivery_latency_seconds",
    type: "histogram",
    help: "Time from the creation of an outbox row to its acknowledged delivery.",
    labels: {},
    roles: ["poller"],
    buckets: LATENCY_SECONDS,
  },
  httpPublishResponses: {
    name: "svc_http_publish_responses_total",
    type: "counter",
    help: "Answers of HTTP destinations by status class; error when there was no answer.",
    labels: { status_class: ["2xx", "3xx", "4xx", "5xx", "error"] },
    roles: ["poller"],
  },
  transformFailures: {
    name: "svc_transform_failures_total",
    type: "counter",
    help: "Failed transforms by their onError strategy.",
    labels: { strategy: ["Fail", "Skip", "Dead"] },
    roles: ["ingest", "poller"],
  },
  inboxMessages: {
    name: "svc_inbox_messages_total",
    type: "counter",
    help: "Received messages: new, duplicate, and forwarded to the outbox.",
    labels: { status: ["new", "forwarded", "duplicate"] },
    roles: ["ingest", "relay"],
  },
  inboxRelayErrors: {
    name: "svc_inbox_relay_errors_total",
    type: "counter",
    help: "Relay passes that failed.",
    labels: {},
    roles: ["relay"],
  },
  inboxRejections: {
    name: "svc_inbox_rejections_total",
    type: "counter",
    help: "Received messages that were not accepted, by reason.",
    labels: {
      reason: [
        "extraction_failed",
        "transform_failed",
        "transform_unavailable",
        "storage_failed",
        "unauthorized",
        "rate_limited",
      ],
    },
    roles: ["ingest"],
  },
  inboxFiltered: {
    name: "svc_inbox_filtered_total",
    type: "counter",
    help: "Received messages that a header filter dropped.",
    labels: {},
    roles: ["ingest"],
  },
  inboxOldestPendingAge: {
    name: "svc_inbox_oldest_pending_age_seconds",
    type: "gauge",
    help: "Age of the oldest pending push row of the inbox that this configuration relays; 0 when there is none.",
    labels: {},
    roles: ["relay"],
  },
  inboxUnrelayed: {
    name: "svc_inbox_messages_unrelayed",
    type: "gauge",
    help: "Pending push rows of sources that this configuration does not relay, among the oldest 10,000 pending push rows.",
    labels: {},
    roles: ["relay"],
  },
  claimDuration: {
    name: "svc_claim_duration_seconds",
    type: "histogram",
    help: "Time of one claim statement.",
    labels: { component: [] },
    roles: ["ingest", "relay", "poller"],
    buckets: CALL_SECONDS,
  },
  claimRows: {
    name: "svc_claim_rows",
    type: "histogram",
    help: "Rows of one claim.",
    labels: { component: [] },
    roles: ["ingest", "relay", "poller"],
    buckets: ROWS,
  },
  claimsLost: {
    name: "svc_claims_lost_total",
    type: "counter",
    help: "Claims that were taken back before they were settled.",
    labels: { component: ["poller", "pull"] },
    roles: ["ingest", "relay", "poller"],
  },
  cleanupDeleted: {
    name: "svc_cleanup_messages_deleted_total",
    type: "counter",
    help: "Rows that retention deleted.",
    labels: { table: [] },
    roles: ["retention"],
  },
  cleanupDuration: {
    name: "svc_cleanup_duration_seconds",
    type: "histogram",
    help: "Time of one retention run over a table.",
    labels: { table: [] },
    roles: ["retention"],
    buckets: CLEANUP_SECONDS,
  },
  cleanupLastRun: {
    name: "svc_cleanup_last_run_timestamp_seconds",
    type: "gauge",
    help: "Unix time of the last finished retention run over a table.",
    labels: { table: [] },
    roles: ["retention"],
  },
  dbPoolConnections: {
    name: "svc_db_pool_connections",
    type: "gauge",
    help: "Database connections of this replica that are used or idle, and callers that are waiting for one.",
    labels: { state: ["used", "idle", "waiting"] },
    roles: EVERY,
  },
  captureLag: {
    name: "svc_capture_lag_seconds",
    type: "gauge",
    help: "Time from the commit of the last captured outbox insert to its capture.",
    labels: {},
    roles: ["capture"],
  },
  replicationSlotLag: {
    name: "svc_replication_slot_lag_bytes",
    type: "gauge",
    help: "Database log that the server keeps on its disk for the replication slot; PostgreSQL only.",
    labels: {},
    roles: ["capture"],
  },
  replicationSlotUnconfirmed: {
    name: "svc_replication_slot_unconfirmed_bytes",
    type: "gauge",
    help: "Database log that the capture has not confirmed as seen yet; PostgreSQL only.",
    labels: {},
    roles: ["capture"],
  },
  replicationSlotStatus: {
    name: "svc_replication_slot_wal_status",
    type: "gauge",
    help: "1 for the present wal_status of the replication slot, 0 for the others; PostgreSQL only.",
    labels: { status: SLOT_STATUSES },
    roles: ["capture"],
  },
} as const satisfies Readonly<Record<string, ServiceMetric>>;

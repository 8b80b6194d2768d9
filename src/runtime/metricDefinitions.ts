import { REFUSALS } from "../model/refusals.ts";
import { ROLES, type Role } from "../model/roles.ts";
import { RELAY_DEATHS } from "../model/rows.ts";
import { SLOT_STATUSES } from "../ports/capture.ts";
import { DESTINATION_STATES } from "../ports/destinationStore.ts";

/** A metric of the service, as the code makes it and the documentation lists it. */
export interface ServiceMetric {
  /** With prefix and unit. */
  readonly name: string;
  readonly type: "counter" | "gauge" | "histogram";
  readonly help: string;
  /** Label names, each with all the values it can have; no values if they come from the configuration. */
  readonly labels: Readonly<Record<string, readonly string[]>>;
  /** Upper bounds of a histogram's buckets, ascending, without `+Inf`. */
  readonly buckets?: readonly number[];
  /** Only processes with one of these roles show it. */
  readonly roles: readonly Role[];
}

type Details = Pick<ServiceMetric, "help"> & Partial<Pick<ServiceMetric, "labels" | "buckets">>;

const metric =
  (type: ServiceMetric["type"]) =>
  (name: string, roles: readonly Role[], details: Details): ServiceMetric => ({
    name,
    type,
    labels: {},
    roles,
    ...details,
  });
const gauge = metric("gauge");
const counter = metric("counter");
const histogram = metric("histogram");

const EVERY = ROLES;
const POLLER = ["poller"] as const;
const RETENTION = ["retention"] as const;
const CAPTURE = ["capture"] as const;

/** From a database round trip on the same machine to a receiver's time limit. */
const CALL_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30] as const;
/** From a message that nothing delays to a message that waits out retries or an outage. */
const LATENCY_SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600] as const;
const CLEANUP_SECONDS = [0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800] as const;
/** The first bucket counts the claims that found nothing. */
const ROWS = [0, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500] as const;

/**
 * Every metric of the service, by the method of the `Metrics` port that reports to it, in the order of the table in
 * `docs/metrics.md`. prom-client's process and event-loop metrics keep their usual names (`process_*`, `nodejs_*`),
 * so that common dashboards find them. No label carries a message, a key or a topic.
 */
export const METRICS = {
  info: gauge("svc_info", EVERY, {
    help: "Always 1.",
    labels: { version: [] },
  }),
  roleInfo: gauge("svc_role_info", EVERY, {
    help: "Always 1 for each role of the process.",
    labels: { role: ROLES },
  }),
  uptime: gauge("svc_uptime_seconds", EVERY, { help: "Seconds since the process started." }),
  eventLoopBlocked: counter("svc_event_loop_blocked_seconds_total", EVERY, {
    help: "Time for which the event loop was blocked, over a second at a time.",
  }),
  componentUp: gauge("svc_component_up", EVERY, {
    help: "1 if the health component is up, else 0.",
    labels: { component: [] },
  }),
  outboxMessages: counter("svc_outbox_messages_total", POLLER, {
    help: "Outbox deliveries by outcome; failed ones are retried.",
    labels: { status: ["sent", "failed", "dead"] },
  }),
  outboxPending: gauge("svc_outbox_messages_pending", POLLER, {
    help: "Pending outbox rows.",
  }),
  outboxOldestPendingAge: gauge("svc_outbox_oldest_pending_age_seconds", POLLER, {
    help: "Age of the oldest due pending outbox row.",
  }),
  outboxReclaimed: counter("svc_outbox_messages_reclaimed_total", POLLER, {
    help: "Outbox rows returned to pending because their lease expired.",
  }),
  outboxProcessError: counter("svc_outbox_process_errors_total", POLLER, {
    help: "Failed poller passes.",
  }),
  outboxRowRefused: counter("svc_outbox_rows_refused_total", POLLER, {
    help: "Claims and outcomes that a trigger or constraint of the table refused.",
  }),
  outboxProcessingDuration: histogram("svc_outbox_processing_duration_seconds", POLLER, {
    help: "Time from claiming an outbox row to settling it.",
    buckets: CALL_SECONDS,
  }),
  outboxPublishDuration: histogram("svc_outbox_publish_duration_seconds", POLLER, {
    help: "Time of one publish and its acknowledgement.",
    labels: { destination_type: [] },
    buckets: CALL_SECONDS,
  }),
  outboxDestinationMessage: counter("svc_outbox_destination_messages_total", POLLER, {
    help: "Deliveries by destination and outcome.",
    labels: { destination: [], outcome: ["sent", "failed", "dead"] },
  }),
  outboxParked: counter("svc_outbox_parked_total", POLLER, {
    help: "Deliveries that parked their row; they are failed, too.",
    labels: { destination: [] },
  }),
  messagesExpanded: counter("svc_outbox_messages_expanded_total", ["ingest", "relay", "poller"], {
    help: "Messages expanded into a delivery for each destination of their list.",
  }),
  deliverySkipped: counter("svc_outbox_deliveries_skipped_total", ["ingest", "relay", "poller"], {
    help: "Deliveries not made because their condition (when) was false.",
    labels: { destination: [] },
  }),
  partlyDeadMessages: gauge("svc_outbox_partly_dead_messages", POLLER, {
    help: "Messages of a list with a dead delivery and a sent one, among the 1,000 outbox rows that died last.",
  }),
  outboxQueueDepth: gauge("svc_outbox_queue_depth", POLLER, {
    help: "Claimed rows of this replica, waiting or in delivery.",
    labels: { destination: [] },
  }),
  destinationState: gauge("svc_destination_state", POLLER, {
    help: "1 for the current state, 0 for the others.",
    labels: { destination: [], state: DESTINATION_STATES },
  }),
  destinationInFlight: gauge("svc_destination_in_flight", POLLER, {
    help: "Deliveries of this replica in flight.",
    labels: { destination: [] },
  }),
  destinationBacklog: gauge("svc_destination_backlog", POLLER, {
    help: "Pending outbox rows of the destination.",
    labels: { destination: [] },
  }),
  destinationDue: gauge("svc_destination_due", POLLER, {
    help: "Due outbox rows, unless a pause or the breaker holds them back.",
    labels: { destination: [] },
  }),
  destinationOldestAge: gauge("svc_destination_oldest_age_seconds", POLLER, {
    help: "Age of the oldest due pending outbox row of the destination.",
    labels: { destination: [] },
  }),
  destinationRateLimited: counter("svc_destination_rate_limited_seconds_total", POLLER, {
    help: "Time that claimed rows of this replica waited for the rate limit.",
    labels: { destination: [] },
  }),
  breakerTransition: counter("svc_destination_breaker_transitions_total", POLLER, {
    help: "Changes of the circuit breaker by this replica.",
    labels: { destination: [], to: ["open", "half-open", "closed"] },
  }),
  blockedKeys: gauge("svc_blocked_keys", POLLER, {
    help: "Keys whose first unfinished row waits for its retry or is parked.",
  }),
  parkedRows: gauge("svc_parked_rows", POLLER, {
    help: "Parked outbox rows.",
  }),
  deliveryLatency: histogram("svc_delivery_latency_seconds", POLLER, {
    help: "Time from creating an outbox row to its acknowledged delivery.",
    buckets: LATENCY_SECONDS,
  }),
  messageDelivery: histogram("svc_message_delivery_duration_seconds", POLLER, {
    help: "Time from the receipt of a message, or its insert by an application, to its acknowledged delivery.",
    labels: { destination: [] },
    buckets: LATENCY_SECONDS,
  }),
  httpPublishResponse: counter("svc_http_publish_responses_total", POLLER, {
    help: "Responses of HTTP destinations; error means no response.",
    labels: { status_class: ["2xx", "3xx", "4xx", "5xx", "error"] },
  }),
  transformFailure: counter("svc_transform_failures_total", ["ingest", "poller"], {
    help: "Failed transforms by their onError strategy.",
    labels: { strategy: ["Fail", "Skip", "Dead"] },
  }),
  inboxMessages: counter("svc_inbox_messages_total", ["ingest", "relay"], {
    help: "Messages received (new, duplicate) and relayed (forwarded).",
    labels: { status: ["new", "forwarded", "duplicate"] },
  }),
  inboxRelayError: counter("svc_inbox_relay_errors_total", ["relay"], { help: "Relay passes that failed." }),
  inboxRejection: counter("svc_inbox_rejections_total", ["ingest"], {
    help: "Received messages that were refused.",
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
  }),
  inboxDead: counter("svc_inbox_dead_total", ["ingest", "relay"], {
    help: "Inbox rows that became dead.",
    labels: {
      reason: [...Object.keys(RELAY_DEATHS), "extraction_failed", "transform_failed", "storage_failed", "pull"],
    },
  }),
  inboxRefused: counter("svc_inbox_refused_total", ["ingest"], {
    help: "Answers of HTTP sources that refuse a request, or an item of a batch stored in part.",
    labels: { source: [], reason: REFUSALS },
  }),
  inboxWithoutAggregateId: counter("svc_inbox_without_aggregate_id_total", ["ingest"], {
    help: "Messages without the aggregate id for which their source is configured.",
    labels: { source: [] },
  }),
  inboxFiltered: counter("svc_inbox_filtered_total", ["ingest"], {
    help: "Received messages dropped by a header filter.",
  }),
  journalDropped: counter("svc_journal_dropped_total", ["ingest"], {
    help: "Filtered messages and duplicates missing from the journal.",
  }),
  inboxOldestPendingAge: gauge("svc_inbox_oldest_pending_age_seconds", ["relay"], {
    help: "Age of the oldest due push row that this configuration relays.",
  }),
  inboxUnrelayed: gauge("svc_inbox_messages_unrelayed", ["relay"], {
    help: "Pending push rows that this configuration does not relay, among the oldest 10,000.",
  }),
  claimDuration: histogram("svc_claim_duration_seconds", ["ingest", "relay", "poller"], {
    help: "Time of one claim statement.",
    labels: { component: [] },
    buckets: CALL_SECONDS,
  }),
  claimRows: histogram("svc_claim_rows", ["ingest", "relay", "poller"], {
    help: "Rows of one claim.",
    labels: { component: [] },
    buckets: ROWS,
  }),
  claimsLost: counter("svc_claims_lost_total", ["ingest", "relay", "poller"], {
    help: "Claims taken back before they were settled.",
    labels: { component: ["poller", "pull"] },
  }),
  cleanupDeleted: counter("svc_cleanup_messages_deleted_total", RETENTION, {
    help: "Rows deleted by retention.",
    labels: { table: [] },
  }),
  cleanupDuration: histogram("svc_cleanup_duration_seconds", RETENTION, {
    help: "Time of one retention run over a table.",
    labels: { table: [] },
    buckets: CLEANUP_SECONDS,
  }),
  cleanupLastRun: gauge("svc_cleanup_last_run_timestamp_seconds", RETENTION, {
    help: "Unix time of the last finished retention run over a table.",
    labels: { table: [] },
  }),
  dbPoolConnections: gauge("svc_db_pool_connections", EVERY, {
    help: "Database connections of this replica, and callers that wait for one.",
    labels: { state: ["used", "idle", "waiting"] },
  }),
  captureLag: gauge("svc_capture_lag_seconds", CAPTURE, {
    help: "Time from the commit of the last captured insert to its capture.",
  }),
  replicationSlotLag: gauge("svc_replication_slot_lag_bytes", CAPTURE, {
    help: "Log that the server retains for the replication slot; PostgreSQL only.",
  }),
  replicationSlotUnconfirmed: gauge("svc_replication_slot_unconfirmed_bytes", CAPTURE, {
    help: "Log that capture has not confirmed yet; PostgreSQL only.",
  }),
  replicationSlotStatus: gauge("svc_replication_slot_wal_status", CAPTURE, {
    help: "1 for the current wal_status of the slot, else 0; PostgreSQL only.",
    labels: { status: SLOT_STATUSES },
  }),
} satisfies Readonly<Record<string, ServiceMetric>>;

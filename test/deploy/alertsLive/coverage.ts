/**
 * Which alerts each block of the tests in this folder causes. test/deploy/alerts.test.ts compares them with the rules, so that a new alert needs a
 * live test; each block compares its own with what it caused.
 */
export const LIVE_ALERTS = {
  outbox: [
    "SvcCaptureDown",
    "SvcNotReady",
    "SvcDestinationFailing",
    "SvcBlockedKeys",
    "SvcCircuitBreakerOpen",
    "SvcDeadMessages",
    "SvcParkedRows",
    "SvcMessagesPartlyDead",
    "SvcTransformsFailing",
    "SvcDestinationPaused",
    "SvcOutboxLate",
    "SvcOutboxStuck",
    "SvcDestinationLate",
    "SvcDestinationRateLimited",
    "SvcClaimsLost",
    "SvcDeliveryBudgetFast",
    "SvcDeliveryBudgetSlow",
  ],
  inbox: [
    "SvcReceiptsNotStored",
    "SvcReceiptsRefused",
    "SvcInboxDead",
    "SvcInboxUnrelayed",
    "SvcInboxLate",
    "SvcRetentionNotRunning",
  ],
  fleet: ["SvcNoIngest", "SvcReplicaDown", "SvcNoPoller", "SvcNoRelay", "SvcRoleGone", "SvcDown", "SvcAbsent"],
  restarts: ["SvcRestarting"],
  source: ["SvcSourceDisconnected"],
  pool: ["SvcDatabasePoolExhausted"],
  eventLoop: ["SvcEventLoopBlocked"],
  capture: ["SvcCaptureLag", "SvcReplicationSlotLag", "SvcReplicationSlotLost"],
  kubernetes: ["SvcPodsNotStarting", "SvcRetentionJobFailed"],
} as const satisfies Readonly<Record<string, readonly string[]>>;

export type LiveBlock = keyof typeof LIVE_ALERTS;

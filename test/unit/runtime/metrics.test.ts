import { describe, expect, test } from "@jest/globals";
import type { Role } from "../../../src/model/roles.ts";
import type { Metrics } from "../../../src/ports/metrics.ts";
import { METRICS } from "../../../src/runtime/metricDefinitions.ts";
import { createMetrics } from "../../../src/runtime/metrics.ts";
import { eventually } from "../../support/eventually.ts";
import { manualTime } from "../../support/manualTime.ts";
import { sumOfSamples } from "../../support/service.ts";

function setup(roles?: readonly Role[]) {
  const time = manualTime();
  const options = { version: "1.2.3", clock: time.clock, processMetrics: false };
  const registry = createMetrics(roles === undefined ? options : { ...options, roles });
  const lines = async () => (await registry.text()).split("\n");
  /** The value of the series with exactly this name and these labels. */
  const value = async (series: string) => {
    const line = (await lines()).find((each) => each.startsWith(`${series} `));
    return line === undefined ? undefined : Number(line.slice(series.length + 1));
  };
  return { time, registry, metrics: registry.metrics, lines, value };
}

/** Calls every method once. */
function touchEverything(metrics: Metrics): void {
  metrics.outboxMessages("sent", 3);
  metrics.outboxPending(4);
  metrics.outboxOldestPendingAge(5.5);
  metrics.outboxReclaimed(2);
  metrics.outboxProcessError();
  metrics.outboxRowRefused(2);
  metrics.outboxProcessingDuration(0.02);
  metrics.outboxPublishDuration("http", 0.2);
  metrics.outboxDestinationMessage("orders", "dead");
  metrics.outboxParked("orders");
  metrics.messagesExpanded(3);
  metrics.deliverySkipped("orders");
  metrics.partlyDeadMessages(2);
  metrics.outboxQueueDepth("orders", 3);
  metrics.deliveryLatency(1.5);
  metrics.messageDelivery("orders", 2.5);
  metrics.httpPublishResponse("5xx");
  metrics.transformFailure("Skip");
  metrics.inboxMessages("duplicate", 2);
  metrics.inboxRelayError();
  metrics.inboxRejection("unauthorized");
  metrics.inboxRefused("orders", "credentials");
  metrics.inboxWithoutAggregateId("orders");
  metrics.inboxFiltered();
  metrics.journalDropped(3);
  metrics.inboxOldestPendingAge(7);
  metrics.inboxUnrelayed(9);
  metrics.claimDuration("outbox-poller", 0.004);
  metrics.claimRows("outbox-poller", 100);
  metrics.claimsLost("other", 1);
  metrics.blockedKeys(6);
  metrics.parkedRows(8);
  metrics.destinationState("orders", "paused");
  metrics.destinationInFlight("orders", 4);
  metrics.destinationBacklog("orders", 11, 12);
  metrics.destinationDue("orders", 10);
  metrics.destinationRateLimited("orders", 0.5);
  metrics.breakerTransition("orders", "open");
  metrics.componentUp("database", true);
  metrics.cleanupDeleted("outbox", 1000);
  metrics.cleanupDuration("outbox", 3);
  metrics.cleanupLastRun("outbox", 1_700_000_000);
  metrics.captureLag(0.25);
  metrics.replicationSlotLag(1024, 256);
  metrics.replicationSlotStatus("extended");
}

describe("the metrics", () => {
  test("all appear once they are touched, each with the value it was given", async () => {
    const { registry, metrics, lines, value } = setup();
    registry.observePools([{ connections: { usage: () => ({ used: 3, idle: 4, waiting: 1 }) } }]);
    touchEverything(metrics);
    const names = (await lines()).filter((line) => line.startsWith("# TYPE ")).map((line) => line.split(" ")[2]);
    expect(names.sort()).toEqual(
      Object.values(METRICS)
        .map((metric) => metric.name as string)
        .sort(),
    );
    expect(await value('svc_outbox_messages_total{status="sent"}')).toBe(3);
    expect(await value("svc_outbox_oldest_pending_age_seconds")).toBe(5.5);
    expect(await value('svc_destination_state{destination="orders",state="paused"}')).toBe(1);
    expect(await value('svc_destination_state{destination="orders",state="ok"}')).toBe(0);
    expect(await value('svc_db_pool_connections{state="waiting"}')).toBe(1);
  });

  test("show what can be named from the start, and no gauge before its first measurement", async () => {
    const { value } = setup();
    expect(await value('svc_outbox_messages_total{status="dead"}')).toBe(0);
    expect(await value('svc_inbox_rejections_total{reason="rate_limited"}')).toBe(0);
    expect(await value("svc_inbox_filtered_total")).toBe(0);
    expect(await value("svc_delivery_latency_seconds_count")).toBe(0);
    expect(await value("svc_outbox_messages_pending")).toBeUndefined();
    expect(await value('svc_db_pool_connections{state="used"}')).toBeUndefined();
  });

  test("are those of the process's roles", async () => {
    const { metrics, lines } = setup(["retention"]);
    touchEverything(metrics);
    const names = (await lines()).filter((line) => line.startsWith("# TYPE ")).map((line) => line.split(" ")[2]);
    expect(names).toContain("svc_cleanup_messages_deleted_total");
    expect(names).toContain("svc_uptime_seconds");
    expect((await lines()).filter((line) => line.startsWith("svc_role_info"))).toEqual([
      'svc_role_info{role="retention"} 1',
    ]);
    expect(names).not.toContain("svc_outbox_messages_total");
  });

  test("of a process that only ingests hold those of its pull clients", async () => {
    const { metrics, value } = setup(["ingest"]);
    metrics.claimDuration("pull", 0.004);
    metrics.claimRows("pull", 20);
    metrics.claimsLost("pull", 2);
    expect(await value('svc_claim_duration_seconds_count{component="pull"}')).toBe(1);
    expect(await value('svc_claim_rows_sum{component="pull"}')).toBe(20);
    expect(await value('svc_claims_lost_total{component="pull"}')).toBe(2);
  });

  test("of cells have their label, and those of the whole process none", async () => {
    const registry = createMetrics({ version: "1", cells: ["a", "b"], processMetrics: false });
    const using = (used: number) => ({ connections: { usage: () => ({ used, idle: 0, waiting: 0 }) } });
    const shared = using(3);
    registry.observePools([shared, { ...shared }, using(1)]);
    registry.ofCell("a").outboxMessages("sent", 2);
    registry.ofCell("a").outboxQueueDepth("d", 1);
    registry.ofCell("b").outboxPending(7);
    registry.metrics.inboxRejection("unauthorized");
    const lines = (await registry.text()).split("\n");
    expect(lines).toEqual(
      expect.arrayContaining([
        'svc_outbox_messages_total{status="sent",cell="a"} 2',
        'svc_outbox_messages_total{status="sent",cell="b"} 0',
        'svc_outbox_queue_depth{destination="d",cell="a"} 1',
        'svc_outbox_messages_pending{cell="b"} 7',
        'svc_db_pool_connections{state="used",cell=""} 4',
        'svc_inbox_rejections_total{reason="unauthorized",cell=""} 1',
        'svc_info{version="1",cell=""} 1',
      ]),
    );
  });

  test("come as Prometheus text, with the metrics of the process beside them", async () => {
    const registry = createMetrics({ version: "1.2.3" });
    const text = await registry.text();
    expect(text).toContain("\nprocess_resident_memory_bytes ");
    expect(text).toContain("\nnodejs_eventloop_lag_seconds ");
    expect(text.endsWith("\n")).toBe(true);
  });

  test("count the time for which the event loop was blocked", async () => {
    const registry = createMetrics({ version: "1.2.3" });
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1500);
    const isCounted = async () =>
      expect(sumOfSamples(await registry.text(), "svc_event_loop_blocked_seconds_total")).toBeGreaterThan(1);
    await eventually(isCounted);
  });

  test("count the uptime", async () => {
    const { time, value } = setup();
    await time.advance(1500);
    expect(await value("svc_uptime_seconds")).toBe(1.5);
  });
});

describe("a histogram", () => {
  test("counts cumulatively, a value on a bound among those below it", async () => {
    const { metrics, lines } = setup();
    for (const seconds of [0, 0.005, 0.0051, 31]) metrics.outboxProcessingDuration(seconds);
    const buckets = (await lines()).filter((line) => line.startsWith("svc_outbox_processing_duration_seconds_bucket"));
    expect(buckets.map((line) => line.replace(/.*le="([^"]+)"} /, "$1: "))).toEqual([
      "0.001: 1",
      "0.0025: 1",
      "0.005: 2",
      "0.01: 3",
      "0.025: 3",
      "0.05: 3",
      "0.1: 3",
      "0.25: 3",
      "0.5: 3",
      "1: 3",
      "2.5: 3",
      "5: 3",
      "10: 3",
      "30: 3",
      "+Inf: 4",
    ]);
  });
});

describe("a value that is no number", () => {
  test("changes nothing, and a counter never goes down", async () => {
    const { metrics, value } = setup();
    metrics.inboxMessages("new", 5);
    metrics.inboxMessages("new", Number.NaN);
    metrics.inboxMessages("new", -3);
    metrics.deliveryLatency(Number.NaN);
    metrics.outboxPending(4);
    metrics.outboxPending(Number.POSITIVE_INFINITY);
    expect(await value('svc_inbox_messages_total{status="new"}')).toBe(5);
    expect(await value("svc_delivery_latency_seconds_count")).toBe(0);
    expect(await value("svc_outbox_messages_pending")).toBe(4);
  });
});

test("a label value with quotes, newlines and backslashes is escaped", async () => {
  const { metrics, lines } = setup();
  metrics.outboxQueueDepth('a"b\\c\nd', 1);
  expect(await lines()).toContain('svc_outbox_queue_depth{destination="a\\"b\\\\c\\nd"} 1');
});

import { expect, test } from "@jest/globals";
import { createMetrics } from "../../../src/runtime/metrics.ts";
import { OPEN_METRICS, wantsOpenMetrics } from "../../../src/runtime/openMetrics.ts";
import { manualTime } from "../../support/manualTime.ts";

const TRACE = "0af7651916cd43dd8448eb211c80319c";

function setup() {
  const { clock } = manualTime();
  const destinations = ["orders", 'a"b'];
  return createMetrics({ version: "1", clock, processMetrics: false, destinations, deliveryBuckets: [0.5, 2] });
}

test("counters lose their ending in TYPE and HELP, and the text has an end", async () => {
  const registry = setup();
  registry.metrics.outboxMessages("sent", 3);

  const lines = (await registry.openMetrics()).split("\n");

  expect(lines).toContain("# TYPE svc_outbox_messages counter");
  expect(lines).toContain("# HELP svc_outbox_messages Outbox deliveries by outcome; failed ones are retried.");
  expect(lines).toContain('svc_outbox_messages_total{status="sent"} 3');
  expect(lines.slice(-2)).toEqual(["# EOF", ""]);
  expect(lines.slice(0, -1)).not.toContain("");
  // The other form stays to the letter.
  expect(await registry.text()).toContain("# TYPE svc_outbox_messages_total counter");
});

test("each bucket has the last trace that it counted", async () => {
  const registry = setup();
  registry.metrics.messageDelivery("orders", 0.4);
  registry.metrics.messageDelivery("orders", 0.3, "f".repeat(32));
  registry.metrics.messageDelivery("orders", 0.2, TRACE);
  registry.metrics.messageDelivery('a"b', 9, TRACE);

  const lines = (await registry.openMetrics()).split("\n").filter((line) => line.includes("# {"));

  expect(lines).toEqual([
    expect.stringMatching(
      new RegExp(
        `^svc_message_delivery_duration_seconds_bucket\\{le="0.5",destination="orders"\\} 3 # \\{trace_id="${TRACE}"\\} 0.2 [\\d.]+$`,
      ),
    ),
    expect.stringContaining(`{le="+Inf",destination="a\\"b"} 1 # {trace_id="${TRACE}"} 9 `),
  ]);
  expect(await registry.text()).not.toContain(TRACE);
});

test.each([
  ["application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3", true],
  ["text/plain", false],
  [undefined, false],
])("a client that accepts %s gets OpenMetrics: %s", (accept, expected) => {
  expect(wantsOpenMetrics(accept)).toBe(expected);
  expect(OPEN_METRICS).toContain("version=1.0.0");
});

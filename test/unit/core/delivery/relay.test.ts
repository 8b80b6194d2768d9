import { describe, expect, test } from "@jest/globals";
import { CONNECTION_HEADERS, Relay } from "../../../../src/core/delivery/relay.ts";
import { EMPTY_TOPIC, EXPIRED, type MessageId } from "../../../../src/model/rows.ts";
import type { InboxStore, RelayRequest, RelayResult, UnrelayedRows } from "../../../../src/ports/store.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../../support/recorders.ts";

/** A relay with nothing to relay. */
function setup() {
  const { log, lines } = recordingLog();
  const { metrics, calls } = recordingMetrics();
  const clock = new ManualClock();
  const requests: RelayRequest[] = [];
  const asked: unknown[] = [];
  const state: { unrelayed: readonly UnrelayedRows[]; dead: RelayResult["dead"] } = { unrelayed: [], dead: [] };
  const store: Pick<InboxStore, "relay" | "oldestPendingAgeMs" | "unrelayed"> = {
    async relay(request) {
      requests.push(request);
      return { relayed: 0, dead: state.dead, more: false };
    },
    async oldestPendingAgeMs(sources) {
      asked.push(sources);
      return 3000;
    },
    async unrelayed(sources, limit) {
      asked.push([sources, limit]);
      return state.unrelayed;
    },
  };
  const relay = new Relay({
    store: store as InboxStore,
    rules: {
      topics: { orders: ["t"], shop: ["t"] },
      ownKeySources: ["shop"],
      maxAttempts: 5,
      droppedHeaders: CONNECTION_HEADERS,
    },
    batchSize: 10,
    onRelayed() {},
    onDead() {},
    clock,
    metrics,
    log,
  });
  const gauge = async (afterMs = 0) => {
    clock.advance(afterMs);
    await relay.gauge();
  };
  return { relay, gauge, lines, calls, requests, asked, state };
}

describe("rows that the configuration does not relay", () => {
  test("are counted apart from the passes", async () => {
    const { relay, gauge, calls, asked, requests, state } = setup();
    state.unrelayed = [
      { source: "gone", count: 2 },
      { source: "went", count: 3 },
    ];
    await relay.pass();
    expect(calls).toEqual([]);
    await gauge();
    expect(calls).toEqual(["inboxOldestPendingAge(3)", "inboxUnrelayed(5)"]);
    expect(asked).toEqual([
      ["orders", "shop"],
      [["orders", "shop"], 10_000],
    ]);
    expect(requests[0]).toMatchObject({ ownKeySources: ["shop"] });
  });

  test("are warned about once, again when the sources change, and each hour", async () => {
    const { gauge, lines, state } = setup();
    state.unrelayed = [{ source: "gone", count: 2 }];
    await gauge();
    state.unrelayed = [{ source: "gone", count: 4 }];
    await gauge();
    expect(lines).toMatchObject([{ level: "warn", fields: { rows: { gone: 2 } } }]);
    state.unrelayed = [
      { source: "gone", count: 4 },
      { source: "went", count: 1 },
    ];
    await gauge();
    expect(lines).toHaveLength(2);
    await gauge(3_600_000);
    expect(lines).toHaveLength(3);
    state.unrelayed = [];
    await gauge();
    await gauge(3_600_000);
    expect(lines).toHaveLength(3);
    state.unrelayed = [{ source: "gone", count: 1 }];
    await gauge();
    expect(lines).toHaveLength(4);
  });
});

test("rows that became dead are counted by reason, which is one of a few, and logged with their source", async () => {
  const { relay, calls, lines, state } = setup();
  const reasons = [EXPIRED, EMPTY_TOPIC, "the outbox table refuses this message: no", "reason not storable"];
  state.dead = reasons.map((reason, n) => ({ id: `${n}` as MessageId, source: "orders", reason }));
  await relay.pass();
  expect(calls).toEqual([
    "inboxDead(expired)",
    "inboxDead(topic_empty)",
    "inboxDead(outbox_refused)",
    "inboxDead(outbox_refused)",
  ]);
  expect(lines.map(({ fields }) => fields)).toEqual(state.dead);
});

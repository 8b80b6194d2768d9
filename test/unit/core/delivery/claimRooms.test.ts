import { beforeEach, describe, expect, test } from "@jest/globals";
import { MAX_CLAIM_BYTES } from "../../../../src/core/delivery/claims.ts";
import { ClaimRooms, FairShare } from "../../../../src/core/delivery/fairShare.ts";
import { KeyQueues, type QueuedRow } from "../../../../src/core/delivery/keyQueues.ts";
import type { Verdict } from "../../../../src/core/destinations/breaker.ts";
import { ManualClock } from "../../../support/recorders.ts";
import { outboxRow } from "../../../support/scriptedOutbox.ts";

describe("the room of a destination", () => {
  let clock: ManualClock;
  let queues: KeyQueues;
  let share: FairShare;
  let rooms: ClaimRooms;
  /** What the limits of a destination let it hold. */
  const wanted = new Map<string, number>();

  beforeEach(() => {
    clock = new ManualClock();
    queues = new KeyQueues();
    share = new FairShare({ concurrency: 8, isShared: true, clock });
    wanted.clear();
    rooms = new ClaimRooms({
      queues,
      share,
      gates: { rowsWanted: (destination) => wanted.get(destination) },
      destinations: ["a", "b"],
      batchSize: 100,
    });
  });

  function queue(destination: string, count: number, payload = "{}"): void {
    for (let n = 0; n < count; n += 1) {
      const row = outboxRow({ key: `${destination}-${n}`, payload }) as QueuedRow["row"];
      queues.add({ row, key: row.key, claim: {} as QueuedRow["claim"], destination, isRetry: false });
    }
  }

  function deliver(destination: string, verdict: Verdict): void {
    for (let n = 0; n < 8; n += 1) share.end(share.begin(destination), verdict);
  }

  test("is a batch until more than half of it waits; rows without a destination always have some", () => {
    expect([...rooms.all()]).toEqual([
      ["a", 100],
      ["b", 100],
      ["", 100],
    ]);
    queue("a", 50);
    expect([...rooms.all().keys()]).toEqual(["b", "a", ""]);
    queue("a", 1);
    expect([...rooms.all().keys()]).toEqual(["b", ""]);
    expect(rooms.busy).toEqual(new Set(["a"]));
  });

  test("is none if no destination has any", () => {
    wanted.set("a", 0);
    wanted.set("b", 0);
    expect(rooms.all().size).toBe(0);
  });

  test("is none while it is closed, whose waiting rows go back", () => {
    wanted.set("a", 0);
    expect([rooms.of("a"), rooms.isClosed("a"), rooms.isOverfull("a")]).toEqual([0, true, false]);
    queue("a", 1);
    expect([rooms.isOverfull("a"), rooms.busy.has("a")]).toEqual([true, false]);
  });

  test("is what its limits let through, less what waits", () => {
    wanted.set("a", 10);
    queue("a", 5);
    expect(rooms.of("a")).toBe(5);
    queue("a", 1);
    expect(rooms.of("a")).toBe(0);
    expect(rooms.isOverfull("a")).toBe(false);
    queue("a", 15);
    expect(rooms.isOverfull("a")).toBe(true);
  });

  test("is none while large payloads wait", () => {
    queue("a", 1, "x".repeat(MAX_CLAIM_BYTES / 2 + 1));
    expect(rooms.of("a")).toBe(0);
  });

  test("is two rows for each slot while all are in use, or what it delivers in half a second", () => {
    clock.advance(1000 - (clock.monotonic() % 1000));
    for (let n = 0; n < 80; n += 1) share.end(share.begin("a"), "healthy");
    clock.advance(1000);
    for (let n = 0; n < 8; n += 1) share.begin("b");
    expect([rooms.of("a"), rooms.of("b")]).toEqual([40, 16]);
    queue("b", 8);
    expect(rooms.of("b")).toBe(8);
    queue("b", 1);
    expect(rooms.of("b")).toBe(0);
  });

  test("is a row for each slot while deliveries fail, one while others want slots, and none just after a delivery", () => {
    deliver("a", "healthy");
    deliver("a", "failed");
    expect(rooms.of("a")).toBe(0);
    clock.advance(50);
    expect(rooms.of("a")).toBe(8);
    for (let n = 0; n < 8; n += 1) share.begin("b");
    share.next(["b"]);
    expect(rooms.of("a")).toBe(1);
  });

  test("is also that of names that no process has configured", () => {
    rooms.unknown = ["gone"];
    expect([...rooms.all().keys()]).toEqual(["a", "b", "", "gone"]);
  });
});

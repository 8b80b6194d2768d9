import { describe, expect, test } from "@jest/globals";
import type { JournalEntry } from "../support/chaos/journal.ts";
import {
  change,
  claim,
  comeInReverse,
  deliver,
  fault,
  goesWell,
  insert,
  insertClaimed,
  reclaim,
  run,
  settle,
  useRuns,
  violations,
} from "./checkedRun.ts";

/** The checker is shown what it has to find. */
useRuns();

test("a run that went well has no violation", async () => {
  goesWell(1000, "A.1");
  expect(await violations()).toEqual([]);
});

test("nor has a receipt that claims its row if nothing waits", async () => {
  goesWell(1000, "A.1");
  run.history.sent("m-3", "k");
  insertClaimed(2000, "B.1", 3);
  deliver(2010, "B.1", 3);
  settle(2020, "B.1", 3);
  expect(await violations()).toEqual([]);
});

describe("a violation is", () => {
  test("an acknowledged message that has not come, and its row that is not sent", async () => {
    goesWell(1000, "A.1", [1]);
    expect(await violations()).toEqual(["m-2 its row is pending", "m-2 was acknowledged and never delivered"]);
  });

  test("a message without a row, and a message that nobody had sent", async () => {
    goesWell(1000, "A.1");
    run.history.sent("m-3", "k");
    run.history.acknowledged("m-3");
    run.history.received("m-4", "A.1");
    expect(await violations()).toEqual([
      "m-3 was acknowledged and never delivered",
      "m-4 was delivered and never sent",
    ]);
  });

  test("a first arrival out of order", async () => {
    for (const n of [1, 2]) claim(1000, "A.1", n);
    deliver(1010, "A.1", 2);
    deliver(1020, "A.1", 1);
    for (const n of [1, 2]) settle(1050, "A.1", n);
    expect(await violations()).toEqual(["m-1 came for the first time after m-2"]);
  });

  test("a receipt that claims its row past an earlier one of the key", async () => {
    run.history.sent("m-3", "k");
    insertClaimed(1000, "A.1", 3);
    expect(await violations()).toContain("m-3 claimed while m-1, an earlier row of its key, was pending (A.1)");
  });

  test("a claim past an earlier row of the key that another process has, or nobody", async () => {
    claim(1000, "A.1", 1);
    claim(1005, "B.1", 2);
    deliver(1010, "A.1", 1);
    settle(1020, "A.1", 1);
    deliver(1030, "B.1", 2);
    settle(1040, "B.1", 2);
    expect(await violations()).toEqual(["m-2 claimed while m-1, an earlier row of its key, was processing (B.1)"]);
  });

  test("a delivery under a claim that the same process had to give back, because it had given back the row before", async () => {
    claim(1000, "A.1", 1);
    reclaim(1005, "A.1", 1, 2995);
    claim(1010, "A.1", 2);
    deliver(1020, "A.1", 2);
    settle(1030, "A.1", 2);
    goesWell(1040, "B.1", [1]);
    expect(await violations()).toEqual([
      "m-1 came for the first time after m-2",
      "m-2 came from A.1 under a claim that it had to give back, because of m-1",
    ]);
  });

  test("a delivery under a claim that had to be given back, although another process has the row before by then", async () => {
    claim(1000, "A.1", 1);
    reclaim(1005, "A.1", 1, 2995);
    claim(1006, "B.1", 1);
    claim(1010, "A.1", 2);
    deliver(1020, "B.1", 1);
    settle(1030, "B.1", 1);
    deliver(1040, "A.1", 2);
    settle(1050, "A.1", 2);
    expect(await violations()).toEqual(["m-2 came from A.1 under a claim that it had to give back, because of m-1"]);
  });

  test("a claim past an earlier row of the key that another process has had for long", async () => {
    claim(1000, "A.1", 1);
    deliver(1010, "A.1", 1, false);
    reclaim(1020, "B.1", 1);
    claim(1030, "B.1", 1);
    claim(3021, "A.1", 2);
    deliver(3030, "A.1", 2);
    settle(3040, "A.1", 2);
    deliver(3050, "B.1", 1);
    settle(3060, "B.1", 1);
    expect(await violations()).toEqual(["m-2 claimed while m-1, an earlier row of its key, was processing (A.1)"]);
  });

  test.each([
    ["marked sent", () => settle(1020, "B.1", 1)],
    ["taken back before its lease has ended", () => reclaim(1020, "B.1", 1, 5)],
  ])("a row that is %s by a process without a claim", async (_how, move) => {
    goesWell(1000, "A.1", []);
    claim(1000, "A.1", 1);
    deliver(1010, "A.1", 1);
    move();
    expect((await violations())[0]).toMatch(/^m-1 went to (sent|pending) by another process than A\.1/);
  });

  test("a claim of a parked row", async () => {
    change(1000, "B.1", 1, "pending", "processing", { claim: "B.1 1000", wasParked: true });
    deliver(1010, "B.1", 1);
    settle(1020, "B.1", 1);
    goesWell(1100, "A.1", [2]);
    expect(await violations()).toEqual(["m-1 was claimed while it was parked (B.1)"]);
  });

  test("a change of a waiting row that was not parked", async () => {
    change(900, "B.1", 1, "pending", "pending");
    goesWell(1000, "A.1");
    expect(await violations()).toEqual(["m-1 went from pending to pending (B.1)"]);
  });

  test("a change of a row that is sent", async () => {
    goesWell(1000, "A.1");
    change(2000, "B.1", 1, "sent", "sent");
    expect(await violations()).toEqual(["m-1 went from sent to sent (B.1)"]);
  });

  test("a row that is sent and that its process had not delivered", async () => {
    goesWell(1000, "A.1", [1]);
    claim(2000, "A.1", 2);
    settle(2010, "A.1", 2);
    deliver(2020, "B.1", 2);
    expect(await violations()).toEqual([
      "m-2 its row was marked sent by A.1, which had not delivered it under that claim",
      "m-2 came from B.1 without a claim, or a second time under one",
    ]);
  });
});

test("a parked row that an operator retries is delivered as any other", async () => {
  claim(1000, "A.1", 1);
  change(1010, "A.1", 1, "processing", "pending", { leaseLeftMs: 2990, attempt: 1 });
  change(1500, "C.1", 1, "pending", "pending", { wasParked: true });
  goesWell(2000, "B.1");
  expect(await violations()).toEqual([]);
});

describe("a row that is sent by a process whose delivery a stream has passed over is", () => {
  const NOT_DELIVERED = "m-1 its row was marked sent by B.1, which had not delivered it under that claim";

  test.each([
    ["allowed within the stream's own window", 10_950, true, []],
    ["a violation later", 10_899, true, [NOT_DELIVERED]],
    ["a violation without a stream", 10_950, false, [NOT_DELIVERED]],
  ] as const)("%s", async (_how, at, stream, expected) => {
    run.goesToBroker = stream;
    claim(10_000, "A.1", 1);
    fault(10_500, 10_510, "A.1");
    reclaim(10_600, "B.1", 1);
    deliver(at, "A.1", 1);
    claim(11_000, "B.1", 1);
    settle(11_010, "B.1", 1);
    goesWell(11_100, "B.1", [2]);
    run.timeline.clockSteps.push({ from: 10_500, until: 10_500, isBack: false });
    expect(await violations()).toEqual(expected);
  });
});

describe("a repetition", () => {
  /** A delivers the first message and never settles it; B delivers both after the end of the lease. */
  function leftToItsLease(answered = true): void {
    claim(10_000, "A.1", 1);
    deliver(10_010, "A.1", 1, answered);
    reclaim(13_001, "B.1", 1);
    goesWell(13_100, "B.1");
  }

  const NEEDLESS = "m-1 came from A.1 under a claim that ended expired, and nothing had touched that process";

  test("without a fault is a violation", async () => {
    leftToItsLease();
    expect(await violations()).toEqual([NEEDLESS]);
  });

  test("is allowed if the process was touched between the delivery and the end of its claim, or could still feel it", async () => {
    leftToItsLease();
    fault(10_500, 11_000, "A.1");
    expect(await violations()).toEqual([]);
  });

  test.each([
    ["of another process", 10_500, "B.1"],
    ["that was over long before", 2000, "A.1"],
    ["that came after the end of the claim", 13_500, "A.1"],
  ])("is not allowed by a fault %s", async (_which, from, process) => {
    leftToItsLease();
    fault(from, from + 100, process);
    expect(await violations()).toEqual([NEEDLESS]);
  });

  test.each([
    ["allowed in the second half of the lease, in which a busy machine may be too slow to settle", 11_501, []],
    ["a violation in the first half", 11_499, [NEEDLESS]],
  ] as const)("of what came without a fault is %s", async (_how, at, expected) => {
    claim(10_000, "A.1", 1);
    deliver(at, "A.1", 1);
    reclaim(13_001, "B.1", 1);
    goesWell(13_100, "B.1");
    expect(await violations()).toEqual(expected);
  });

  test("is allowed if the receiver did not answer", async () => {
    leftToItsLease(false);
    expect(await violations()).toEqual([]);
  });

  test.each([
    ["allowed after the process had been suspended over the end of its claim", true, []],
    [
      "a violation when it was not suspended",
      false,
      ["m-1 came from A.1 after a claim that ended expired, without a suspension"],
    ],
  ] as const)("that comes late, after later messages, is %s", async (_how, suspends, expected) => {
    claim(10_000, "A.1", 1);
    reclaim(13_001, "B.1", 1);
    goesWell(13_100, "B.1");
    fault(10_005, 15_000, "A.1", suspends);
    deliver(15_010, "A.1", 1);
    expect(await violations()).toEqual(expected);
  });

  test("that comes late is a violation when another one of its key came late after the same suspension", async () => {
    for (const n of [1, 2]) claim(10_000, "A.1", n);
    for (const n of [1, 2]) reclaim(13_001, "B.1", n);
    goesWell(13_100, "B.1");
    fault(10_005, 15_000, "A.1", true);
    for (const n of [1, 2]) deliver(15_010, "A.1", n);
    expect(await violations()).toEqual([
      "m-2 came from A.1 after a claim that ended expired, as another one of its key after one suspension",
    ]);
  });

  test("under one claim is allowed once, at once, if the receiver did not answer", async () => {
    goesWell(1000, "A.1", [1]);
    claim(2000, "A.1", 2);
    deliver(2010, "A.1", 2, false);
    deliver(2020, "A.1", 2);
    settle(2030, "A.1", 2);
    expect(await violations()).toEqual([]);
    deliver(2015, "A.1", 2);
    expect(await violations()).toEqual(["m-2 came from A.1 without a claim, or a second time under one"]);
  });

  test("under one claim is a violation", async () => {
    goesWell(1000, "A.1");
    deliver(1040, "A.1", 2);
    expect(await violations()).toEqual(["m-2 came from A.1 without a claim, or a second time under one"]);
  });
});

describe("after the database was put back to a copy", () => {
  /** The copy is of 500; what follows until 2000 is forgotten but for `lost`. */
  function restore(lost: readonly JournalEntry[] = []): void {
    run.timeline.restores.push({ from: 490, until: 2000, copiedAt: 500, lost });
  }

  /** Sent and acknowledged at a time, by default into a row of its own. */
  function message(id: string, at: number, sequence?: number): void {
    run.now = at;
    run.history.sent(id, "k");
    run.history.acknowledged(id);
    if (sequence !== undefined) insert(at, id, sequence);
  }

  const forgottenClaim = (id: string, sequence: number): JournalEntry => ({
    at: 1000,
    replica: "A.1",
    sequence,
    message: id,
    rowId: `row-${id}`,
    was: "pending",
    wasAttempt: 0,
    leaseLeftMs: null,
    state: "processing",
    attempt: 0,
    wasParked: false,
    claim: "forgotten",
  });

  test("what it has forgotten may be lost, and no more", async () => {
    restore();
    goesWell(3000, "A.1");
    message("m-3", 1500);
    message("m-4", 2500);
    expect(await violations()).toEqual(["m-4 was acknowledged and never delivered"]);
  });

  test("what it still has must come, whenever it was acknowledged", async () => {
    restore();
    goesWell(3000, "A.1");
    message("m-3", 1500, 3);
    expect(await violations()).toEqual(["m-3 its row is pending", "m-3 was acknowledged and never delivered"]);
  });

  test.each([
    ["may come behind later ones, when an earlier try of its sender arrives", 1500, 2600, []],
    ["must come in order if its row is of before", 1500, 1600, ["m-3 came for the first time after m-4"]],
    ["must come in order if it was acknowledged later", 2010, 2600, ["m-3 came for the first time after m-4"]],
    ["must come in order if the copy has it", 495, 2600, ["m-3 came for the first time after m-4"]],
  ])("what it has forgotten %s", async (_what, acknowledgedAt, insertedAt, expected) => {
    restore();
    goesWell(3000, "A.1");
    message("m-3", acknowledgedAt);
    message("m-4", 2020);
    insert(2030, "m-4", 3);
    insert(insertedAt, "m-3", 4);
    comeInReverse(3200);
    expect(await violations()).toEqual(expected);
  });

  test("a delivery under a forgotten claim may be repeated, once", async () => {
    restore([forgottenClaim("m-1", 1)]);
    deliver(1010, "A.1", 1);
    goesWell(3000, "B.1");
    expect(await violations()).toEqual([]);
    deliver(3200, "A.1", 1);
    expect(await violations()).toEqual(["m-1 came from A.1 without a claim, or a second time under one"]);
  });

  test("new messages are claimed in their order, and those of the copy arrive in it for the first time", async () => {
    restore([forgottenClaim("m-1", 1), forgottenClaim("m-2", 2)]);
    for (const n of [1, 2]) deliver(1010, "A.1", n);
    goesWell(3000, "A.1", [2]);
    goesWell(3100, "A.1", [1]);
    expect(await violations()).toEqual([]);
    message("m-3", 3200, 3);
    message("m-4", 3201, 4);
    claim(3300, "B.1", 4);
    deliver(3310, "B.1", 4);
    settle(3320, "B.1", 4);
    goesWell(3400, "A.1", [3]);
    expect(await violations()).toEqual([
      "m-4 claimed while m-3, an earlier row of its key, was pending (B.1)",
      "m-3 came for the first time after m-4",
    ]);
  });
});

describe("if a step of the database's clock has ended a claim early, its process", () => {
  const LATE = "m-1 came from A.1 after a claim that ended expired, without a suspension";

  test.each([
    ["may deliver until the lease would have ended", 10_500, 12_900, []],
    ["may also do so if the step came while the claim was made", 9990, 12_900, []],
    ["may not do so if the step was long before", 8990, 12_900, [LATE]],
    ["may not deliver later", 10_500, 13_600, [LATE]],
  ] as const)("%s", async (_what, steppedAt, at, expected) => {
    claim(10_000, "A.1", 1);
    run.timeline.clockSteps.push({ from: steppedAt, until: steppedAt, isBack: false });
    reclaim(10_600, "B.1", 1);
    goesWell(10_700, "B.1");
    deliver(at, "A.1", 1);
    expect(await violations()).toEqual(expected);
  });

  test("may have a claim of the next row of the key on the way, which has not seen that another one took the row over", async () => {
    claim(10_000, "A.1", 1);
    deliver(10_010, "A.1", 1);
    fault(10_500, 10_510, "A.1");
    reclaim(10_600, "B.1", 1);
    claim(10_603, "B.1", 1);
    claim(10_604, "A.1", 2);
    deliver(10_610, "B.1", 1);
    settle(10_620, "B.1", 1);
    deliver(10_630, "A.1", 2);
    settle(10_640, "A.1", 2);
    expect(await violations()).toEqual([]);
  });
});

describe("if the database's clock is set back, a message that", () => {
  const PASSED = "m-3 came for the first time after m-4";

  /** The second one of these arrives first. The clock is stepped at 5000. */
  function passed(sentAt: number, relayedAt: number, nextAcknowledgedAt: number, isBack = true): void {
    goesWell(1000, "A.1");
    run.timeline.clockSteps.push({ from: 5000, until: 5001, isBack });
    for (const [id, sent, acknowledged] of [
      ["m-3", sentAt, sentAt],
      ["m-4", sentAt, nextAcknowledgedAt],
    ] as const) {
      run.now = sent;
      run.history.sent(id, "k");
      run.now = acknowledged;
      run.history.acknowledged(id);
    }
    insert(relayedAt, "m-4", 3, "row-4");
    insert(relayedAt, "m-3", 4, "row-3");
    comeInReverse(6000);
  }

  test("waits in the inbox may be passed by a message that is received afterwards", async () => {
    passed(4990, 5500, 5010);
    expect(await violations()).toEqual([]);
  });

  test.each([
    ["was relayed before", () => passed(4900, 4990, 5010)],
    ["was sent afterwards", () => passed(5010, 5500, 5020)],
    ["is passed by a message that was received before", () => passed(4900, 5500, 4990)],
    ["waits while the clock is set ahead", () => passed(4990, 5500, 5010, false)],
    [
      "an application has written",
      () => {
        run.comesThroughInbox = false;
        passed(4990, 5500, 5010);
      },
    ],
  ])("%s may not be passed", async (_which, happens) => {
    happens();
    expect(await violations()).toEqual([PASSED]);
  });
});

test("a message whose sender learns its place only afterwards is in its order, a message without a known place in none", async () => {
  goesWell(1000, "A.1");
  run.history.sent("m-4", "other", Number.NaN);
  run.history.sent("m-3", "other", Number.NaN);
  run.history.sent("m-5", "other", Number.NaN);
  run.history.ordered("m-3", 3);
  run.history.ordered("m-4", 4);
  for (const id of ["m-3", "m-5", "m-4"]) run.history.received(id, "A.1");
  expect(run.history.outOfOrder).toEqual([]);
  run.history.ordered("m-4", 2);
  expect(run.history.outOfOrder).toEqual([{ key: "other", late: "m-4", before: "m-3" }]);
});

import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import { Poller, type PollerOptions } from "../../../../src/core/delivery/poller.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import type { ClaimedRow, ClaimToken, Outcome } from "../../../../src/model/rows.ts";
import { delivered, gatesOf } from "../../../support/gates.ts";
import { settle as turns } from "../../../support/manualTime.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../../support/recorders.ts";
import { outboxRow, ScriptedOutbox } from "../../../support/scriptedOutbox.ts";

type Deliver = (row: ClaimedRow, signal: AbortSignal) => Promise<Outcome>;

const sent = (row: ClaimedRow): Outcome => ({ id: row.id, claimToken: row.claimToken, kind: "sent" });
const retry = (row: ClaimedRow): Outcome => ({
  id: row.id,
  claimToken: row.claimToken,
  kind: "retry",
  delayMs: 1000,
  reason: "status 500",
});
const park = (row: ClaimedRow): Outcome => ({ id: row.id, claimToken: row.claimToken, kind: "park", reason: "no" });
const GOING_BACK = [
  ["retried", retry, "retry"],
  ["parked", park, "park"],
] as const;
const release = (row: ClaimedRow): Outcome => ({ id: row.id, claimToken: row.claimToken, kind: "release" });

function setup(deliver: Deliver, overrides: Partial<PollerOptions> = {}) {
  const store = new ScriptedOutbox();
  const clock = new ManualClock();
  const { metrics, calls } = recordingMetrics();
  const { log } = recordingLog();
  const waits: (() => void)[] = [];
  const poller = new Poller({
    store,
    delivery: {
      destinationOf: () => "receiver",
      deliver: async (row, signal) => delivered(await deliver(row, signal)),
    },
    gates: gatesOf({ clock }),
    newToken: () => randomUUID() as ClaimToken,
    batchSize: 100,
    concurrency: 8,
    claimTimeoutMs: 300_000,
    pollIntervalMs: 100,
    onMayClaim: () => {},
    destinations: ["receiver"],
    clock,
    random: () => 0,
    metrics,
    log,
    wait: () => new Promise((resolve) => waits.push(resolve)),
    ...overrides,
  });
  return { store, clock, calls, poller, waits };
}

const settleDown = (): Promise<void> => turns(10);

/** Three rows of one key, each in a claim of its own. The first has been claimed, and its delivery by topic has ended. */
async function failHead(store: ScriptedOutbox, poller: Poller) {
  const rows = {
    head: outboxRow({ key: "a", topic: "fails" }),
    early: outboxRow({ key: "a" }),
    late: outboxRow({ key: "a" }),
  };
  store.batches.push([rows.head], [rows.early], [rows.late]);
  await poller.pass();
  await settleDown();
  return rows;
}

/** A delivery that each test ends by hand. */
function heldDeliveries() {
  const begun: { row: ClaimedRow; signal: AbortSignal; end: (outcome: Outcome) => void }[] = [];
  const deliver: Deliver = (row, signal) => new Promise((end) => begun.push({ row, signal, end }));
  return { begun, deliver };
}

const never = new AbortController().signal;

describe("the poller", () => {
  test("delivers what it claims and settles it", async () => {
    const { store, poller } = setup(async (row) => sent(row));
    const rows = [outboxRow(), outboxRow(), outboxRow()];
    store.batches.push(rows);

    expect(await poller.pass()).toBe("idle");
    await poller.stop(never);

    expect(store.outcomes()).toEqual(rows.map((row) => [row.id, "sent"]));
  });

  test("asks again at once when more rows are due", async () => {
    const { store, poller } = setup(async (row) => sent(row));
    store.batches.push([outboxRow()], [outboxRow()]);

    expect(await poller.pass()).toBe("again");
    expect(await poller.pass()).toBe("idle");
    await poller.stop(never);
  });

  test("rows of one key go one after another, other keys beside them, never more than the concurrency at a time", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller } = setup(deliver, { concurrency: 3 });
    store.batches.push([
      outboxRow({ key: "a", topic: "a1" }),
      outboxRow({ key: "a", topic: "a2" }),
      outboxRow({ key: "b", topic: "b1" }),
      outboxRow({ topic: "free1" }),
      outboxRow({ topic: "free2" }),
    ]);
    await poller.pass();
    expect(begun.map(({ row }) => row.topic)).toEqual(["a1", "b1", "free1"]);

    for (const topic of ["b1", "a1"]) {
      const delivery = begun.find(({ row }) => row.topic === topic);
      delivery?.end(sent(delivery.row));
      await settleDown();
    }

    expect(begun.map(({ row }) => row.topic)).toEqual(["a1", "b1", "free1", "free2", "a2"]);
    for (const { row, end } of begun) end(sent(row));
    await poller.stop(never);
  });

  test("a row that expires while it waits behind another one of its key begins with the time it has left", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver);
    store.batches.push([
      outboxRow({ key: "a", expiresInMs: 3000 }),
      outboxRow({ key: "a", expiresInMs: 3000 }),
      outboxRow({ key: "a", expiresInMs: null }),
    ]);
    await poller.pass();
    for (const index of [0, 1, 2]) {
      clock.advance(2000);
      begun[index]?.end(sent(begun[index].row));
      await settleDown();
    }
    expect(begun.map(({ row }) => row.expiresInMs)).toEqual([3000, 1000, null]);
    await poller.stop(never);
  });

  test("an outcome that the database refuses is logged and counted, keeps no other from being settled, and is no lost claim", async () => {
    const { log, lines } = recordingLog();
    const { store, poller, calls } = setup(async (row) => sent(row), { log });
    const rows = [outboxRow(), outboxRow(), outboxRow()];
    const [one, refused, three] = rows.map(({ id }) => id);
    if (refused !== undefined) store.refusing.add(refused);
    store.batches.push(rows);
    await poller.pass();
    await poller.stop(never);

    expect(store.outcomes()).toEqual([one, three].map((id) => [id, "sent"]));
    expect(lines).toMatchObject([
      { level: "error", fields: { id: refused, outcome: "sent", reason: "the row is refused" } },
    ]);
    expect(calls.filter((call) => /Refused|claimsLost/.test(call))).toEqual(["outboxRowRefused(1)"]);
  });

  test.each(GOING_BACK)(
    "a row that cannot be %s keeps its key waiting while its claim is named as held",
    async (_, back, _kind) => {
      const { begun, deliver } = heldDeliveries();
      const { store, poller } = setup(deliver);
      const [failing, beside, later] = [outboxRow({ key: "a" }), outboxRow({ key: "b" }), outboxRow({ key: "a" })];
      store.refusing.add(failing.id);
      store.batches.push([failing, beside], [later]);
      await poller.pass();
      const [first, second] = begun;
      if (first === undefined || second === undefined) throw new Error("two deliveries expected");
      first.end(back(first.row));
      await settleDown();
      await poller.pass();
      await settleDown();
      expect(store.outcomes()).toEqual([[later.id, "release"]]);

      second.end(sent(second.row));
      await settleDown();
      store.batches.push([later]);
      await poller.pass();
      expect(begun.map(({ row }) => row.id)).toEqual([failing.id, beside.id, later.id]);
      for (const { row, end } of begun) end(sent(row));
      await poller.stop(never);
    },
  );

  test.each(GOING_BACK)(
    "a row that is %s takes the later rows of its key back with it, and nothing else",
    async (_, back, kind) => {
      const { store, poller } = setup(async (row) => (row.topic === "a1" ? back(row) : sent(row)));
      const rows = [
        outboxRow({ key: "a", topic: "a1" }),
        outboxRow({ key: "a", topic: "a2" }),
        outboxRow({ key: "b", topic: "b1" }),
        outboxRow({ key: "a", topic: "a3" }),
      ];
      store.batches.push(rows);

      await poller.pass();
      await poller.stop(never);

      const outcomes = new Map(store.outcomes());
      expect(rows.map((row) => outcomes.get(row.id))).toEqual([kind, "release", "sent", "release"]);
    },
  );

  test("a dead row lets the later rows of its key go on", async () => {
    const { store, poller } = setup(async (row) =>
      row.topic === "a1" ? { ...sent(row), kind: "dead", attempted: true, reason: "no" } : sent(row),
    );
    store.batches.push([outboxRow({ key: "a", topic: "a1" }), outboxRow({ key: "a", topic: "a2" })]);

    await poller.pass();
    await settleDown();
    await poller.stop(never);

    expect(store.outcomes().map(([, kind]) => kind)).toEqual(["dead", "sent"]);
  });

  test.each(GOING_BACK)(
    "a claim that was made while a row of the key was %s gives the key's later rows back",
    async (_, back, kind) => {
      // The claim begins while a1 counts as held by this process; a1 then fails; the claim returns a2, which must not overtake it.
      const { begun, deliver } = heldDeliveries();
      const { store, poller } = setup(deliver);
      const [a1, a2, b1] = [outboxRow({ key: "a" }), outboxRow({ key: "a" }), outboxRow({ key: "b" })];
      store.batches.push([a1]);
      await poller.pass();

      let answer = (): void => {};
      const claim = store.claim.bind(store);
      store.claim = async (request) => {
        await new Promise<void>((resolve) => {
          answer = resolve;
        });
        return await claim(request);
      };
      store.batches.push([a2, b1]);
      const pass = poller.pass();
      await settleDown();
      const [first] = begun;
      first?.end(back(first.row));
      await settleDown();
      expect(store.outcomes()).toEqual([[a1.id, kind]]);
      answer();
      await pass;
      await settleDown();

      expect(store.outcomes()).toEqual([
        [a1.id, kind],
        [a2.id, "release"],
      ]);
      expect(begun.map(({ row }) => row.id)).toEqual([a1.id, b1.id]);
      begun[1]?.end(sent(begun[1].row));
      await poller.stop(never);
    },
  );

  test.each(GOING_BACK)(
    "later rows of a key stay back until it is committed that the row is %s",
    async (_, back, kind) => {
      const { store, poller, waits } = setup(async (row) => (row.topic === "fails" ? back(row) : sent(row)));
      const settle = store.settle.bind(store);
      store.settle = async () => {
        throw new Error("connection lost");
      };
      const { head, early, late } = await failHead(store, poller);
      await poller.pass();
      store.settle = settle;
      waits.shift()?.();
      await settleDown();

      await poller.pass();
      await poller.stop(never);

      expect(store.outcomes()).toEqual([
        [head.id, kind],
        [early.id, "release"],
        [late.id, "sent"],
      ]);
    },
  );

  test("makes no claim while rows that it gave back as soon as it had them are not back in the database", async () => {
    // The claim would return rows behind them, to be given back for their sake, and the next one these again for the sake of those: for ever.
    let rooms = 0;
    const onMayClaim = () => {
      rooms += 1;
    };
    const { store, poller } = setup(async (row) => (row.topic === "fails" ? retry(row) : sent(row)), { onMayClaim });
    const settle = store.settle.bind(store);
    const commits: (() => void)[] = [];
    store.settle = async (outcomes) => {
      await new Promise<void>((resolve) => commits.push(resolve));
      return await settle(outcomes);
    };
    const commit = async () => {
      commits.shift()?.();
      await settleDown();
    };
    const { head, early, late } = await failHead(store, poller);

    expect(await poller.pass()).toBe("idle");
    await commit();
    expect(store.outcomes()).toEqual([[head.id, "retry"]]);
    expect(await poller.pass()).toBe("idle");
    expect([store.claims.length, rooms]).toEqual([2, 0]);

    await commit();
    expect(rooms).toBe(1);
    await poller.pass();
    await settleDown();
    await commit();
    expect(store.outcomes()).toEqual([
      [head.id, "retry"],
      [early.id, "release"],
      [late.id, "sent"],
    ]);
    await poller.stop(never);
  });

  test("claims ahead only while few rows wait, and tells the store which claims it holds", async () => {
    const { begun, deliver } = heldDeliveries();
    let rooms = 0;
    const onMayClaim = () => {
      rooms += 1;
    };
    const { store, poller } = setup(deliver, { batchSize: 4, concurrency: 1, onMayClaim });
    store.batches.push([outboxRow(), outboxRow(), outboxRow(), outboxRow()], [outboxRow()]);
    expect(await poller.pass()).toBe("idle");
    await poller.pass();
    expect(store.claims).toHaveLength(1);
    expect(rooms).toBe(0);

    begun[0]?.end(sent(begun[0].row));
    await settleDown();
    expect(rooms).toBe(1);
    await poller.pass();

    expect(store.claims[1]?.heldTokens).toEqual([store.claims[0]?.token]);
    for (let n = 1; n < 5; n += 1) {
      begun[n]?.end(sent(begun[n]?.row as ClaimedRow));
      await settleDown();
    }
    await poller.stop(never);
  });

  test("outcomes that the database does not take are kept and settled when it answers again", async () => {
    const { store, poller, waits, calls } = setup(async (row) => sent(row));
    const settle = store.settle.bind(store);
    store.settle = async () => {
      throw new Error("connection lost");
    };
    const row = outboxRow();
    store.batches.push([row]);
    await poller.pass();
    await settleDown();
    expect(store.outcomes()).toEqual([]);
    expect(calls).toContain("outboxProcessError()");

    store.settle = settle;
    waits.shift()?.();
    await poller.stop(never);

    expect(store.outcomes()).toEqual([[row.id, "sent"]]);
  });

  test("few outcomes wait for as long as the last statement took, so that they share the next; many do not", async () => {
    const { begun, deliver } = heldDeliveries();
    const pauses: { ms: number; end: () => void }[] = [];
    const clock = new ManualClock();
    const { store, poller } = setup(deliver, {
      clock,
      batchSize: 1000,
      concurrency: 1000,
      wait: (ms) => new Promise((end) => pauses.push({ ms, end })),
    });
    const batches: number[] = [];
    const settle = store.settle.bind(store);
    store.settle = async (outcomes) => {
      batches.push(outcomes.length);
      clock.advance(8);
      return await settle(outcomes);
    };
    store.batches.push(Array.from({ length: 600 }, () => outboxRow()));
    await poller.pass();
    const end = async (count: number) => {
      for (const { row, end } of begun.splice(0, count)) end(sent(row));
      await settleDown();
    };

    await end(1);
    expect({ batches, pauses }).toEqual({ batches: [1], pauses: [] });
    clock.advance(2);
    await end(3);
    await end(4);
    expect(batches).toEqual([1]);
    expect(pauses.map(({ ms }) => ms)).toEqual([6]);
    clock.advance(6);
    pauses.shift()?.end();
    await settleDown();
    expect(batches).toEqual([1, 7]);

    await end(300);
    expect({ batches, pauses }).toEqual({ batches: [1, 7, 300], pauses: [] });
    clock.advance(8);
    await end(292);
    expect({ batches, pauses }).toEqual({ batches: [1, 7, 300, 292], pauses: [] });
    await poller.stop(never);
  });

  test("a outcome that the fence refuses is counted and otherwise forgotten", async () => {
    const { store, poller, calls } = setup(async (row) => sent(row));
    const row = outboxRow();
    store.takenOver.add(row.id);
    store.batches.push([row]);

    await poller.pass();
    await poller.stop(never);

    expect(calls).toContain("claimsLost(poller, 1)");
  });

  test.each([
    ["finds it written where the lease still holds", 0, []],
    ["is lost where the lease has run out meanwhile", 60_000, ["claimsLost(poller, 1)"]],
  ])("a outcome that is tried again after a lost answer %s", async (_what, awayMs, lost) => {
    const { store, poller, calls, clock } = setup(async (row) => sent(row), { wait: async () => {} });
    const row = outboxRow();
    const settle = store.settle.bind(store);
    store.settle = async (outcomes) => {
      store.settle = settle;
      await settle(outcomes);
      store.takenOver.add(row.id);
      clock.advance(awayMs);
      throw new StoreError("unavailable", "outbox.settle: the answer was lost");
    };
    store.batches.push([row]);

    await poller.pass();
    await poller.stop(never);

    expect(store.outcomes()).toEqual([
      [row.id, "sent"],
      [row.id, "sent"],
    ]);
    expect(calls.filter((call) => call.startsWith("claimsLost"))).toEqual(lost);
  });
});

describe("the next pass", () => {
  test("comes within the poll interval while a failed row waits for its retry, and a little longer", async () => {
    const { store, poller, clock } = setup(async (row) => retry(row));
    expect(poller.nextPassWithinMs).toBe(Infinity);
    store.batches.push([outboxRow()]);
    await poller.pass();
    await settleDown();

    clock.advance(1999);
    expect(poller.nextPassWithinMs).toBe(100);
    clock.advance(1);
    expect(poller.nextPassWithinMs).toBe(Infinity);
    await poller.stop(never);
  });
});

describe("the queue depth", () => {
  test("goes back to nothing, however the rows end", async () => {
    const { store, poller, calls } = setup(async (row) => (row.topic === "fails" ? retry(row) : sent(row)), {
      concurrency: 1,
    });
    store.batches.push([outboxRow({ key: "a", topic: "fails" }), outboxRow({ key: "a" }), outboxRow(), outboxRow()]);
    await poller.pass();

    await poller.stop(never);

    let depth = 0;
    let highest = 0;
    for (const call of calls) {
      const delta = /^outboxQueueDepth\(receiver, (-?1)\)$/.exec(call)?.[1];
      depth += Number(delta ?? 0);
      highest = Math.max(highest, depth);
    }
    expect(highest).toBe(4);
    expect(depth).toBe(0);
  });
});

describe("leases of the poller", () => {
  test("are renewed at a third of their length while rows are open", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver);
    store.batches.push([outboxRow()]);
    await poller.pass();

    await poller.tick();
    expect(store.renewals).toBe(0);
    clock.advance(10_000);
    await poller.tick();
    await poller.tick();
    expect(store.renewals).toBe(1);

    begun[0]?.end(sent(begun[0].row));
    await settleDown();
    clock.advance(10_000);
    await poller.tick();
    expect(store.renewals).toBe(1);
    await poller.stop(never);
  });

  test("a process that was stopped beyond its lease sends nothing more of the claim", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver, { concurrency: 1 });
    const rows = [outboxRow(), outboxRow()];
    store.batches.push(rows);
    await poller.pass();

    clock.advance(31_000);
    begun[0]?.end(sent(begun[0].row));
    await settleDown();
    await poller.stop(never);

    expect(begun).toHaveLength(1);
    expect(store.outcomes()).toEqual([
      [rows[0]?.id, "sent"],
      [rows[1]?.id, "release"],
    ]);
  });

  test("a delivery is cut off when its lease ran out and could not be renewed", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver);
    store.renew = async () => {
      throw new Error("connection lost");
    };
    store.batches.push([outboxRow()]);
    await poller.pass();

    clock.advance(29_000);
    await poller.tick();
    poller.cutOff();
    expect(begun[0]?.signal.aborted).toBe(false);
    clock.advance(2000);
    poller.cutOff();

    expect(begun[0]?.signal.reason).toMatchObject({ name: "ClaimLostError" });
    begun[0]?.end(release(begun[0].row));
    await poller.stop(never);
  });

  test("a delivery is cut off when its lease ran out, where the database renews other claims but not this one", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver);
    const [refused, renewed] = [outboxRow(), outboxRow()];
    for (const row of [refused, renewed]) {
      store.batches.push([row]);
      await poller.pass();
    }
    store.takenOver.add(refused.id);

    clock.advance(10_000);
    await poller.tick();
    clock.advance(20_000);
    poller.cutOff();

    expect(begun.map(({ signal }) => signal.aborted)).toEqual([true, false]);
    for (const delivery of begun) delivery.end(sent(delivery.row));
    await poller.stop(never);
  });

  test("a delivery is cut off when its lease ran out while its renewal hangs", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver);
    store.renew = () => new Promise(() => {});
    store.batches.push([outboxRow()]);
    await poller.pass();
    clock.advance(29_000);
    void poller.tick();
    poller.cutOff();
    expect(begun[0]?.signal.aborted).toBe(false);
    clock.advance(2000);
    void poller.tick();
    poller.cutOff();

    expect(begun[0]?.signal.reason).toMatchObject({ name: "ClaimLostError" });
    begun[0]?.end(release(begun[0].row));
    await poller.stop(never);
  });

  test("rows that a renewal no longer finds are not sent", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver, { concurrency: 1 });
    const [first, second] = [outboxRow(), outboxRow()];
    store.batches.push([first, second]);
    await poller.pass();
    store.takenOver.add(second.id);
    clock.advance(10_000);
    await poller.tick();

    begun[0]?.end(sent(begun[0].row));
    await poller.stop(never);

    expect(begun.map(({ row }) => row.id)).toEqual([first.id]);
  });

  test("no claim outlives claimTimeoutMs, however often it is renewed", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller, clock } = setup(deliver, { claimTimeoutMs: 40_000 });
    store.batches.push([outboxRow()]);
    await poller.pass();

    for (let second = 0; second < 41; second += 1) {
      clock.advance(1000);
      await poller.tick();
      poller.cutOff();
    }

    expect(store.renewals).toBeGreaterThan(2);
    expect(begun[0]?.signal.aborted).toBe(true);
    begun[0]?.end(release(begun[0].row));
    await poller.stop(never);
  });
});

describe("stopping the poller", () => {
  test("lets deliveries end, gives back what waits, and claims nothing more", async () => {
    const { begun, deliver } = heldDeliveries();
    const { store, poller } = setup(deliver, { concurrency: 1 });
    const [first, second] = [outboxRow(), outboxRow()];
    store.batches.push([first, second], [outboxRow()]);
    await poller.pass();
    let stopped = false;
    const stopping = poller.stop(never).then(() => {
      stopped = true;
    });
    await settleDown();
    expect(stopped).toBe(false);
    expect(await poller.pass()).toBe("idle");

    begun[0]?.end(sent(begun[0].row));
    await stopping;

    expect(store.claims).toHaveLength(1);
    expect(store.outcomes()).toEqual([
      [second.id, "release"],
      [first.id, "sent"],
    ]);
  });

  test("cuts off what is still in delivery when the time is over, and leaves its claim to the lease", async () => {
    const cutoff = new AbortController();
    const { store, poller } = setup(
      (row, signal) => new Promise((end) => signal.addEventListener("abort", () => end(release(row)))),
    );
    store.batches.push([outboxRow()]);
    await poller.pass();
    const stopping = poller.stop(cutoff.signal);

    cutoff.abort();
    await stopping;

    expect(store.outcomes()).toEqual([]);
  });

  test("rows that a claim returns while the poller stops are given back", async () => {
    const { store, poller } = setup(async (row) => sent(row));
    const row = outboxRow();
    store.batches.push([row]);
    const claim = store.claim.bind(store);
    let answer = (): void => {};
    store.claim = async (request) => {
      await new Promise<void>((resolve) => {
        answer = resolve;
      });
      return await claim(request);
    };
    const pass = poller.pass();
    await settleDown();

    const stopping = poller.stop(never);
    answer();
    await pass;
    await stopping;

    expect(store.outcomes()).toEqual([[row.id, "release"]]);
  });

  test("gives up on outcomes that the database never takes when the time is over", async () => {
    const cutoff = new AbortController();
    const { store, poller, waits } = setup(async (row) => sent(row));
    store.settle = async () => {
      throw new Error("connection lost");
    };
    store.batches.push([outboxRow()]);
    await poller.pass();
    await settleDown();
    const stopping = poller.stop(cutoff.signal);

    cutoff.abort();
    waits.shift()?.();

    await stopping;
  });

  test("returns at once when nothing was ever claimed, and may be called twice", async () => {
    const { poller } = setup(async (row) => sent(row));

    await poller.stop(never);
    await poller.stop(never);

    expect(await poller.pass()).toBe("idle");
  });
});

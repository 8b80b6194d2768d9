import { beforeEach, describe, expect, test } from "@jest/globals";
import { ClaimScopes, type ClaimScopesOptions, type FurtherClaim } from "../../../../src/core/delivery/claimScopes.ts";
import { FairShare } from "../../../../src/core/delivery/fairShare.ts";
import { KeyQueues } from "../../../../src/core/delivery/keyQueues.ts";
import type { ClaimedRow } from "../../../../src/model/rows.ts";
import { ManualClock } from "../../../support/recorders.ts";
import { outboxRow } from "../../../support/scriptedOutbox.ts";

const BATCH = 20;
const CLAIM_BYTES = 1000;
let clock: ManualClock;
let queues: KeyQueues;
let share: FairShare;

beforeEach(() => {
  clock = new ManualClock();
  queues = new KeyQueues();
  share = new FairShare({ concurrency: 8, isShared: true, clock });
});

type Gates = ClaimScopesOptions["gates"];

const scopesWith = ({
  destinations = ["a", "b"],
  batchSize = BATCH,
  ...gates
}: Partial<Pick<ClaimScopesOptions, "destinations" | "batchSize"> & Gates> = {}) =>
  new ClaimScopes({
    queues,
    share,
    gates: { rowsWanted: () => undefined, probed: () => [], forgetProbed: () => {}, ...gates },
    releases: { overflowAt: () => false },
    destinations,
    batchSize,
    claimBytes: CLAIM_BYTES,
    clock,
  });

/** A further claim ends. */
function end(scopes: ClaimScopes, claim: FurtherClaim | undefined, rows: number | undefined): void {
  if (claim === undefined) throw new Error("no further claim was due");
  scopes.furtherEnded(claim, rows);
}

/** A claim returned so many rows of a destination, without a key. */
function claimed(scopes: ClaimScopes, destination: string, count: number, payload = "{}"): void {
  const claim = {} as Parameters<KeyQueues["add"]>[0]["claim"];
  for (let n = 0; n < count; n += 1) {
    scopes.returned(destination);
    queues.add({ row: outboxRow({ payload }) as ClaimedRow, key: null, claim, destination });
  }
}

function delivered(destination: string, count: number): void {
  for (let n = 0; n < count; n += 1) queues.take(destination);
}

/** The claims that would be made; none of them is. */
const furtherOf = (scopes: ClaimScopes) =>
  [...scopes.further()].map((claim) => {
    end(scopes, claim, undefined);
    return [claim.scope.name, claim.limit];
  });

describe("claims", () => {
  test("are of all rows as long as every destination is healthy", () => {
    const scopes = scopesWith();
    claimed(scopes, "a", 10);
    expect([scopes.usual(), scopes.overfull(), furtherOf(scopes)]).toEqual([undefined, [], []]);
    expect(scopes.nextClaimWithinMs).toBe(Number.POSITIVE_INFINITY);
  });

  test("look for the rows of each destination that has few, and past all that had some lately", () => {
    const scopes = scopesWith({ destinations: ["a", "b", "c"] });
    claimed(scopes, "a", 20);
    claimed(scopes, "b", 1);
    const claims = [...scopes.further()];
    expect(claims.map(({ scope }) => scope)).toEqual([
      { name: "only b", which: "only", destinations: ["b"], exceptKeys: [] },
      { name: "all but a, b", which: "except", destinations: ["a", "b"], exceptKeys: [] },
    ]);

    for (const claim of claims) end(scopes, claim, 1);
    clock.advance(5001);
    expect(furtherOf(scopes)).toEqual([["all but ", 10]]);
  });

  test("look for rows without a destination among all others, as long as no more than a few claims of them wait", () => {
    const scopes = scopesWith();
    claimed(scopes, "", 10);
    claimed(scopes, "a", 20);
    expect(furtherOf(scopes)).toEqual([["all but a", 10]]);
    expect(scopes.wantsMore("")).toBe(false);
    claimed(scopes, "", 31);
    expect(furtherOf(scopes)).toEqual([]);
  });
});

describe("the usual claim", () => {
  test("starts earlier the more deliveries began during the last one, while a whole one waits at the earliest", () => {
    const scopes = scopesWith();
    const mostWaitingAfter = (begun: number) => {
      scopes.usualEnded(begun);
      delivered("a", queues.waiting);
      let rows = 0;
      for (; scopes.hasRoom(); rows += 1) claimed(scopes, "a", 1);
      return rows - 1;
    };
    expect([0, 2, 4, 1000, 0].map(mostWaitingAfter)).toEqual([BATCH / 2, BATCH / 2, 16, BATCH, BATCH / 2]);
  });

  test.each([
    { concurrency: 1, begun: 0, limit: 10 },
    { concurrency: 5, begun: 0, limit: 10 },
    { concurrency: 6, begun: 0, limit: 20 },
    { concurrency: 1, begun: 3, limit: 20 },
    { concurrency: 1, begun: 6, limit: 40 },
    { concurrency: 1, begun: 11, limit: 80 },
    { concurrency: 1000, begun: 0, limit: 80 },
  ])(
    "of at most 80 rows takes $limit where $concurrency are delivered at a time, and $begun began during the last one",
    ({ concurrency, begun, limit }) => {
      share = new FairShare({ concurrency, isShared: true, clock });
      const scopes = scopesWith({ batchSize: 80 });
      scopes.usualEnded(begun);
      expect(scopes.usualLimit).toBe(limit);
    },
  );

  test("takes a whole batch where rows wait beside free slots, behind others of their keys", () => {
    const scopes = scopesWith({ batchSize: 80 });
    expect(scopes.usualLimit).toBe(20);
    claimed(scopes, "a", 1);
    expect(scopes.usualLimit).toBe(80);
    for (let n = 0; n < share.concurrency; n += 1) share.begin("a");
    expect(scopes.usualLimit).toBe(20);
  });
});

describe("large payloads", () => {
  const large = "x".repeat(CLAIM_BYTES / 4);

  test("leave no room for the usual claim while more than half of what one returns waits", () => {
    const scopes = scopesWith();
    claimed(scopes, "a", 2, large);
    expect(scopes.hasRoom()).toBe(true);
    claimed(scopes, "a", 1, large);
    expect(scopes.hasRoom()).toBe(false);
    delivered("a", 1);
    expect(scopes.hasRoom()).toBe(true);
  });

  test("of destinations apart leave room", () => {
    const scopes = scopesWith({ rowsWanted: (destination) => (destination === "a" ? 4 : undefined) });
    claimed(scopes, "a", 4, large);
    expect(scopes.hasRoom()).toBe(true);
  });

  test("end the look past the rows of all destinations sooner", () => {
    const scopes = scopesWith();
    claimed(scopes, "a", 12, large);
    expect(furtherOf(scopes)).toEqual([["all but a", 10]]);
    claimed(scopes, "a", 1, large);
    expect(furtherOf(scopes)).toEqual([]);
  });
});

describe("claims beside the usual one", () => {
  test("are under way once for each destination, and for no more than two of them", () => {
    const scopes = scopesWith({ destinations: ["a", "b", "c", "d"] });
    for (const destination of ["b", "c", "d"]) claimed(scopes, destination, 1);
    claimed(scopes, "a", 20);
    for (const destination of ["b", "c", "d"]) delivered(destination, 1);
    const claims = [...scopes.further()];
    expect(claims.map(({ scope }) => scope.name)).toEqual(["only b", "only c", "all but a, b, c, d"]);
    expect([...scopes.further()]).toEqual([]);

    end(scopes, claims[0], 0);
    expect(furtherOf(scopes)).toEqual([["only d", 10]]);
    end(scopes, claims[1], undefined);
    expect(furtherOf(scopes)).toEqual([
      ["only c", 10],
      ["only d", 10],
    ]);
  });

  test("rest when they found nothing, ten times as long as they took, but no longer than 100 ms, or twice as long", () => {
    claimed(scopesWith(), "a", 20);
    const rests = [1, 5, 30, 200].map((tookMs) => {
      const scopes = scopesWith();
      const [claim] = scopes.further();
      clock.advance(tookMs);
      end(scopes, claim, 0);
      let ms = 0;
      for (; ms < 1000 && furtherOf(scopes).length === 0; ms += 10) clock.advance(10);
      return ms;
    });
    expect(rests).toEqual([20, 50, 100, 400]);
  });

  test("rest only as long as they took where rows have come since", () => {
    const scopes = scopesWith();
    claimed(scopes, "a", 20);
    const [claim] = scopes.further();
    clock.advance(5);
    end(scopes, claim, 0);
    scopes.wake();
    expect(furtherOf(scopes)).toEqual([]);
    clock.advance(5);
    expect(furtherOf(scopes)).toEqual([["all but a", 10]]);
  });
});

describe("a destination whose deliveries stall", () => {
  test("gets no more rows as long as some wait that cannot go, and is asked for none", () => {
    const scopes = scopesWith();
    share.end(share.begin("a"), "healthy");
    claimed(scopes, "a", 20);
    const slot = share.begin("a");
    share.begin("a");
    clock.advance(50);
    expect(scopes.usual()).toBeUndefined();
    clock.advance(1);
    expect(scopes.usual()).toMatchObject({ which: "except", destinations: ["a"] });
    expect([scopes.hasRoom(), scopes.overfull(), scopes.scopeOf("a")]).toEqual([true, [], undefined]);
    expect(furtherOf(scopes)).toEqual([]);

    expect(scopes.takeBack("a")).toBe(false);
    share.end(slot, "healthy");
    expect([scopes.takeBack("a"), scopes.takeBack("a")]).toEqual([true, false]);
    expect(scopes.usual()).toBeUndefined();
  });

  test("gets no more rows at once where none has succeeded yet", () => {
    const scopes = scopesWith();
    claimed(scopes, "a", 20);
    expect(scopes.usual()).toBeUndefined();
    const slot = share.begin("a");
    expect(scopes.usual()).toMatchObject({ which: "except", destinations: ["a"] });
    share.end(slot, "healthy");
    expect(scopes.usual()).toBeUndefined();
  });

  test("gets more rows where one could go at once", () => {
    const scopes = scopesWith();
    for (let n = 0; n < 4; n += 1) share.end(share.begin("a"), "healthy");
    claimed(scopes, "a", 20);
    queues.take("a");
    share.begin("a");
    clock.advance(51);
    expect(scopes.usual()).toBeUndefined();
  });
});

describe("an unhealthy destination", () => {
  test("has claims of its own, each 50 ms after the end of the one before at the earliest", () => {
    const scopes = scopesWith();
    for (let n = 0; n < 8; n += 1) share.end(share.begin("a"), "failed");
    const [claim] = scopes.further();
    expect(claim?.scope).toMatchObject({ which: "only", destinations: ["a"] });
    clock.advance(10);
    end(scopes, claim, 2);
    expect([furtherOf(scopes), scopes.wantsMore("a")]).toEqual([[], false]);
    clock.advance(49);
    expect([furtherOf(scopes), scopes.wantsMore("a")]).toEqual([[], false]);
    clock.advance(1);
    expect(scopes.wantsMore("a")).toBe(true);
    expect(furtherOf(scopes)).toEqual([["only a", 2]]);
  });
});

describe("a closed destination", () => {
  const closed = new Set<string>();
  const rowsWanted = (destination: string) => (closed.has(destination) ? 0 : undefined);

  beforeEach(() => {
    closed.clear();
  });

  test("takes part in no claim, and its waiting rows are given back", () => {
    const scopes = scopesWith({ rowsWanted });
    claimed(scopes, "a", 20);
    claimed(scopes, "b", 2);
    expect(scopes.hasRoom()).toBe(false);
    closed.add("a");

    expect(scopes.usual()).toMatchObject({ which: "except", destinations: ["a"] });
    expect(scopes.overfull()).toEqual(["a"]);
    expect(scopes.hasRoom()).toBe(true);
    claimed(scopes, "b", 20);
    expect(furtherOf(scopes)).toEqual([["all but a, b", 10]]);
    expect(scopes.wantsMore("a")).toBe(false);

    closed.delete("a");
    expect([scopes.usual(), scopes.overfull()]).toEqual([undefined, []]);
  });

  test("is left out of claims also where it fails, or is the only one", () => {
    const alone = scopesWith({ rowsWanted, destinations: ["a"] });
    closed.add("a");
    for (let n = 0; n < 8; n += 1) share.end(share.begin("a"), "failed");
    expect(share.isUnhealthy("a")).toBe(true);

    expect(alone.usual()).toMatchObject({ which: "except", destinations: ["a"] });
    expect(furtherOf(alone)).toEqual([]);
    expect(alone.nextClaimWithinMs).toBe(Number.POSITIVE_INFINITY);
  });
});

describe("a destination of which only some rows may wait", () => {
  const rowsWanted = (destination: string) => (destination === "a" ? 8 : undefined);

  test("has claims of its own, for what is free, from when as many wait", () => {
    const scopes = scopesWith({ rowsWanted });
    claimed(scopes, "a", 7);
    expect(scopes.usual()).toBeUndefined();
    claimed(scopes, "a", 1);

    expect(scopes.usual()).toMatchObject({ which: "except", destinations: ["a"] });
    expect(scopes.scopeOf("a")).toBe("only a");
    expect(furtherOf(scopes)).toEqual([]);
    delivered("a", 4);
    expect(scopes.wantsMore("a")).toBe(true);
    expect(furtherOf(scopes)).toEqual([["only a", 4]]);
    delivered("a", 1);
    expect(furtherOf(scopes)).toEqual([["only a", 5]]);
  });

  test("is asked for no rows behind those of a key that waits for another one apart", () => {
    const scopes = scopesWith({ rowsWanted: () => 8 });
    const rowOf = (key: string, destination: string) =>
      queues.add({ row: outboxRow({ key }) as ClaimedRow, key, claim: {} as never, destination });
    for (let n = 0; n < 8; n += 1) {
      rowOf(`a${n}`, "a");
      rowOf(`b${n}`, "b");
    }
    expect(scopes.usual()).toMatchObject({ destinations: ["a", "b"] });
    for (let n = 0; n < 4; n += 1) {
      queues.take("a");
      queues.done(`a${n}`);
      queues.take("b");
    }
    expect([...scopes.further()].map(({ scope }) => [scope.name, scope.exceptKeys])).toEqual([
      ["only a", Array.from({ length: 8 }, (_, n) => `b${n}`)],
      ["only b", ["a4", "a5", "a6", "a7"]],
    ]);
  });

  test("is among all others again when less than half as many wait, and its own claims find no more", () => {
    const scopes = scopesWith({ rowsWanted });
    claimed(scopes, "a", 8);
    expect(scopes.usual()).toBeDefined();
    delivered("a", 5);
    const claim = (rows: number) => {
      for (const claim of scopes.further()) end(scopes, claim, rows);
    };
    expect(scopes.usual()).toBeDefined();
    claim(5);
    expect(scopes.usual()).toBeDefined();
    claim(4);
    expect(scopes.usual()).toBeUndefined();
  });

  test("is not among all others while a claim of its own saw nothing of rows that were given back meanwhile", () => {
    const scopes = scopesWith({ rowsWanted });
    claimed(scopes, "a", 8);
    expect(scopes.usual()).toBeDefined();
    delivered("a", 5);
    const [claim] = scopes.further();
    claimed(scopes, "a", 14);
    expect(scopes.overfull()).toEqual(["a"]);
    queues.dropAt("a");
    end(scopes, claim, 0);
    expect(scopes.usual()).toBeDefined();
    clock.advance(1000);
    for (const claim of scopes.further()) end(scopes, claim, 0);
    expect(scopes.usual()).toBeUndefined();
  });

  test("gets rows back to the database of which more than twice as many wait", () => {
    const scopes = scopesWith({ rowsWanted });
    claimed(scopes, "a", 16);
    expect(scopes.overfull()).toEqual([]);
    claimed(scopes, "a", 1);
    expect(scopes.overfull()).toEqual(["a"]);
  });

  test("gets no more than the usual claim would when any number may wait by now", () => {
    let most: number | undefined = 8;
    const scopes = scopesWith({ rowsWanted: (destination) => (destination === "a" ? most : undefined) });
    claimed(scopes, "a", 8);
    expect(scopes.usual()).toBeDefined();
    most = undefined;
    expect(scopes.scopeOf("a")).toBe("only a");
    for (let claims = 0; claims < 10; claims += 1) {
      for (const claim of scopes.further()) {
        claimed(scopes, "a", claim.limit);
        end(scopes, claim, claim.limit);
      }
    }
    expect(queues.waitingAt("a")).toBe(8 + BATCH);
    delivered("a", 8 + BATCH / 2);
    expect(furtherOf(scopes)).toEqual([["only a", BATCH]]);
  });

  test("has such claims where it is the only one, too, and they rest after one that found nothing", () => {
    const scopes = scopesWith({ rowsWanted, destinations: ["a"] });
    claimed(scopes, "a", 8);
    expect(scopes.nextClaimWithinMs).toBe(100);
    delivered("a", 4);
    const [claim] = scopes.further();
    expect(claim?.limit).toBe(4);
    end(scopes, claim, 0);
    expect(furtherOf(scopes)).toEqual([]);
    clock.advance(20);
    expect(furtherOf(scopes)).toEqual([["only a", 4]]);
  });
});

describe("the next probe", () => {
  test("is of another row than those that failed, until there is none", () => {
    let probed = [outboxRow().id];
    const rowsWanted = (destination: string) => (destination === "a" ? 1 : undefined);
    const scopes = scopesWith({
      rowsWanted,
      probed: (destination) => (destination === "a" ? probed : []),
      forgetProbed: () => {
        probed = [];
      },
    });
    const [first] = [...scopes.further()];
    expect(first).toMatchObject({ limit: 1, scope: { name: "only a", exceptIds: probed } });

    end(scopes, first, 0);
    clock.ms += 1000;
    const [second] = [...scopes.further()];
    expect(second?.scope).toEqual({ name: "only a", which: "only", destinations: ["a"], exceptKeys: [] });
  });
});

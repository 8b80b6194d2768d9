import { beforeEach, describe, expect, test } from "@jest/globals";
import { ClaimScopes, type ClaimScopesOptions } from "../../../src/core/claimScopes.ts";
import { FairShare } from "../../../src/core/fairShare.ts";
import { KeyLanes } from "../../../src/core/keyLanes.ts";
import type { ClaimedRow } from "../../../src/model/rows.ts";
import { ManualClock } from "../../support/recorders.ts";
import { outboxRow } from "../../support/scriptedOutbox.ts";

const BATCH = 20;
let clock: ManualClock;
let lanes: KeyLanes;
let share: FairShare;

beforeEach(() => {
  clock = new ManualClock();
  lanes = new KeyLanes();
  share = new FairShare({ concurrency: 8, isShared: true, clock });
});

const scopesWith = (options: Partial<ClaimScopesOptions> = {}) => {
  const none = { rowsWanted: () => undefined, probed: () => [], forgetProbed: () => {} };
  return new ClaimScopes({ lanes, share, destinations: ["a", "b"], batchSize: BATCH, clock, ...none, ...options });
};

/** A claim returned so many rows of a destination, without a key. */
function claimed(scopes: ClaimScopes, destination: string, count: number): void {
  const batch = {} as Parameters<KeyLanes["add"]>[0]["batch"];
  for (let n = 0; n < count; n += 1) {
    scopes.met(destination);
    lanes.add({ row: outboxRow() as ClaimedRow, batch, destination });
  }
}

function delivered(destination: string, count: number): void {
  for (let n = 0; n < count; n += 1) lanes.take(destination);
}

const furtherOf = (scopes: ClaimScopes) => [...scopes.further()].map(({ scope, limit }) => [scope.name, limit]);

describe("claims", () => {
  test("are of all rows as long as every destination is well", () => {
    const scopes = scopesWith();
    claimed(scopes, "a", 10);
    expect([scopes.usual(), scopes.overfull(), furtherOf(scopes)]).toEqual([undefined, [], []]);
    expect(scopes.nextClaimWithinMs).toBe(Number.POSITIVE_INFINITY);
  });

  test("look for the rows of each destination that has few, and past all that had some lately", () => {
    const scopes = scopesWith({ destinations: ["a", "b", "c"] });
    claimed(scopes, "a", 20);
    claimed(scopes, "b", 1);
    expect([...scopes.further()].map(({ scope }) => scope)).toEqual([
      { name: "only b", which: "only", destinations: ["b"], exceptKeys: [] },
      { name: "all but a, b", which: "except", destinations: ["a", "b"], exceptKeys: [] },
    ]);

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
    expect(share.isIll("a")).toBe(true);

    expect(alone.usual()).toMatchObject({ which: "except", destinations: ["a"] });
    expect([furtherOf(alone), alone.wantsFurther()]).toEqual([[], false]);
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

  test("is among all others again when less than half as many wait, and its own claims find no more", () => {
    const scopes = scopesWith({ rowsWanted });
    claimed(scopes, "a", 8);
    expect(scopes.usual()).toBeDefined();
    delivered("a", 5);
    const claim = (rows: number) => {
      for (const { returned } of scopes.further()) returned(rows);
    };
    expect(scopes.usual()).toBeDefined();
    claim(5);
    expect(scopes.usual()).toBeDefined();
    claim(4);
    expect(scopes.usual()).toBeUndefined();
  });

  test("gets rows back to the database of which more than twice as many wait", () => {
    const scopes = scopesWith({ rowsWanted });
    claimed(scopes, "a", 16);
    expect(scopes.overfull()).toEqual([]);
    claimed(scopes, "a", 1);
    expect(scopes.overfull()).toEqual(["a"]);
  });

  test("has such claims where it is the only one, too, and they rest after one that found nothing", () => {
    const scopes = scopesWith({ rowsWanted, destinations: ["a"] });
    claimed(scopes, "a", 8);
    expect(scopes.nextClaimWithinMs).toBe(100);
    delivered("a", 4);
    const [claim] = scopes.further();
    expect(claim?.limit).toBe(4);
    claim?.returned(0);
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

    first?.returned(0);
    clock.ms += 1000;
    const [second] = [...scopes.further()];
    expect(second?.scope).toEqual({ name: "only a", which: "only", destinations: ["a"], exceptKeys: [] });
  });
});

import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import type { ClaimToken } from "../../../src/model/rows.ts";
import type { NewPause, Opening, SharedDestination } from "../../../src/ports/destinationStore.ts";
import type { StoreHarness } from "./harness.ts";

/** What replicas share about destinations. */
export function exerciseDestinations(open: () => Promise<StoreHarness>): void {
  exercisePauses(open);
  exerciseRates(open);
  exerciseBreakers(open);
  exerciseReports(open);
}

const PAUSE: NewPause = { by: "ada", reason: "they migrate", forMs: undefined };
const OPENING: Opening = {
  probe: null,
  openMs: 5000,
  maxOpenMs: 60_000,
  factor: 1,
  atLeastMs: 0,
  stableAfterMs: 30_000,
  reason: "8 of 10 failed: status 503",
};

const token = (): ClaimToken => randomUUID() as ClaimToken;

async function stateOf({ store }: StoreHarness, name: string): Promise<SharedDestination> {
  const found = (await store.destinations.states()).find((state) => state.name === name);
  if (found === undefined) throw new Error(`nothing is noted of ${name}`);
  return found;
}

/** Opens a breaker, and takes the probe when its time is over. */
async function halfOpen(harness: StoreHarness, name: string, leaseMs = 10_000): Promise<ClaimToken> {
  const probe = token();
  await harness.ageDestinations((await stateOf(harness, name)).breaker.remainingMs + 1);
  expect(await harness.store.destinations.takeProbe(name, probe, leaseMs)).toBe(true);
  return probe;
}

/** What many replicas do at the same moment. */
async function together<T>(
  harness: StoreHarness,
  count: number,
  work: (n: number, on: StoreHarness["store"]) => Promise<T>,
) {
  const stores = [harness.store, await harness.replica(), await harness.replica()];
  return await Promise.all(
    Array.from({ length: count }, (_, n) => work(n, stores[n % stores.length] as StoreHarness["store"])),
  );
}

function exercisePauses(open: () => Promise<StoreHarness>): void {
  describe("a pause of a destination", () => {
    test("is in force in every replica, and says who, when and why", async () => {
      await using harness = await open();
      const { destinations } = harness.store;
      const other = await harness.replica();
      expect(await destinations.states()).toEqual([]);

      await destinations.pause("billing", PAUSE);

      const [state] = await other.destinations.states();
      expect(state).toMatchObject({ name: "billing", pause: { by: "ada", reason: "they migrate", until: null } });
      expect(Math.abs(Date.now() - (state?.pause?.at.getTime() ?? 0))).toBeLessThan(10_000);
      expect(state).toMatchObject({ breaker: { state: "closed", openings: 0, remainingMs: 0, reason: null } });
    });

    test("made again says the last reason; resumed it is over, once", async () => {
      await using harness = await open();
      const { destinations } = harness.store;
      await destinations.pause("billing", PAUSE);
      await destinations.pause("billing", { by: "bob", reason: "still", forMs: 3_600_000 });

      const { pause } = await stateOf(harness, "billing");
      expect(pause).toMatchObject({ by: "bob", reason: "still" });
      const lastsMs = (pause?.until?.getTime() ?? 0) - (pause?.at.getTime() ?? 0);
      expect(Math.abs(lastsMs - 3_600_000)).toBeLessThanOrEqual(1);

      expect(await destinations.resume("billing")).toBe(true);
      expect((await stateOf(harness, "billing")).pause).toBeNull();
      expect(await destinations.resume("billing")).toBe(false);
      expect(await destinations.resume("nobody")).toBe(false);
    });

    test("ends by itself when its time is over", async () => {
      await using harness = await open();
      const { destinations } = harness.store;
      await destinations.pause("billing", { ...PAUSE, forMs: 60_000 });
      await harness.ageDestinations(59_000);
      expect((await stateOf(harness, "billing")).pause).not.toBeNull();

      await harness.ageDestinations(1001);

      expect((await stateOf(harness, "billing")).pause).toBeNull();
      expect(await destinations.resume("billing")).toBe(false);
    });

    test("takes any name and any words, and cuts what is too long", async () => {
      await using harness = await open();
      const { destinations } = harness.store;
      const words = 'it\'s "done" \u0000é \ud83d\ude00 \ud800';
      await destinations.pause("Billing", { by: words, reason: `${words}${"x".repeat(3000)}`, forMs: undefined });
      await destinations.pause("billing", PAUSE);

      const { pause } = await stateOf(harness, "Billing");
      expect(pause?.by).toBe('it\'s "done" é \u{1F600} ');
      expect(pause?.reason).toHaveLength(1998);
      expect((await destinations.states()).map(({ name }) => name)).toEqual(["Billing", "billing"]);
    });
  });
}

function exerciseRates(open: () => Promise<StoreHarness>): void {
  describe("the rate of a destination", () => {
    /** The waits of takes one after another, in ms. */
    const takes = async (
      harness: StoreHarness,
      count: number,
      rate: { tokens: number; perSecond: number; capacity: number },
    ) => {
      const waits: number[] = [];
      for (let n = 0; n < count; n += 1) waits.push(await harness.store.destinations.takeFromRate("billing", rate));
      return waits;
    };

    test("begins with a full bucket and is granted one after the other then", async () => {
      await using harness = await open();
      const rate = { tokens: 10, perSecond: 1, capacity: 30 };

      const waits = await takes(harness, 6, rate);

      expect(waits.slice(0, 3)).toEqual([0, 0, 0]);
      for (const [n, wait] of waits.slice(3).entries()) {
        expect(wait).toBeLessThanOrEqual(10_000 * (n + 1));
        expect(wait).toBeGreaterThan(10_000 * (n + 1) - 5000);
      }
    });

    test("saves up no more than the capacity", async () => {
      await using harness = await open();
      const rate = { tokens: 10, perSecond: 1, capacity: 20 };
      await takes(harness, 3, rate);
      await harness.ageDestinations(3_600_000);

      const waits = await takes(harness, 3, rate);

      expect(waits.slice(0, 2)).toEqual([0, 0]);
      expect(waits[2]).toBeGreaterThan(5000);
    });

    test("is exact for replicas that take at the same moment", async () => {
      await using harness = await open();
      const rate = { tokens: 5, perSecond: 0.5, capacity: 0 };

      const waits = await together(harness, 20, (_, store) => store.destinations.takeFromRate("billing", rate));

      // One after the other every ten seconds: nobody got the time of somebody else.
      const sorted = waits.sort((a, b) => a - b);
      for (const [n, wait] of sorted.entries()) {
        expect(wait).toBeLessThanOrEqual(10_000 * (n + 1));
        expect(wait).toBeGreaterThan(10_000 * (n + 1) - 5000);
      }
    });

    test("takes fractions of a delivery a second, and thousands", async () => {
      await using harness = await open();
      const slow = await harness.store.destinations.takeFromRate("slow", { tokens: 1, perSecond: 0.1, capacity: 0 });
      expect(slow).toBeGreaterThan(5000);
      expect(slow).toBeLessThanOrEqual(10_000);
      const rate = { tokens: 2000, perSecond: 10_000, capacity: 0 };
      const waits = await Promise.all(
        Array.from({ length: 10 }, () => harness.store.destinations.takeFromRate("fast", rate)),
      );
      expect(Math.max(...waits)).toBeLessThanOrEqual(2000);
      expect(Math.max(...waits)).toBeGreaterThan(1000);
    });

    test("begins again when the clock has been put back", async () => {
      await using harness = await open();
      const rate = { tokens: 10, perSecond: 50, capacity: 0 };
      await takes(harness, 2, rate);

      await harness.ageDestinations(-3_600_000);

      const [wait] = await takes(harness, 1, rate);
      expect(wait).toBeLessThanOrEqual(200);
    });

    test("tells what was taken in the last whole second", async () => {
      await using harness = await open();
      await takes(harness, 1, { tokens: 7, perSecond: 100, capacity: 0 });
      expect((await stateOf(harness, "billing")).takenPerSecond % 7).toBe(0);
      await harness.ageDestinations(1000);
      const { takenPerSecond } = await stateOf(harness, "billing");
      await harness.ageDestinations(5000);
      expect([0, 7]).toContain(takenPerSecond);
      expect((await stateOf(harness, "billing")).takenPerSecond).toBe(0);
    });
  });
}

function exerciseBreakers(open: () => Promise<StoreHarness>): void {
  describe("the breaker of a destination", () => {
    test("opens once, however many replicas ask for it", async () => {
      await using harness = await open();

      const opened = await together(harness, 20, (_, store) => store.destinations.open("billing", OPENING));

      expect(opened.filter((openMs) => openMs !== undefined)).toEqual([5000]);
      const { breaker } = await stateOf(harness, "billing");
      expect(breaker).toMatchObject({ state: "open", openings: 1, reason: OPENING.reason });
      expect(breaker.remainingMs).toBeGreaterThan(0);
      expect(breaker.remainingMs).toBeLessThanOrEqual(5000);
    });

    test("gives its probe to one caller, and only when its time is over", async () => {
      await using harness = await open();
      const { destinations } = harness.store;
      expect(await destinations.takeProbe("billing", token(), 10_000)).toBe(false);
      await destinations.open("billing", { ...OPENING, openMs: 60_000 });
      expect(await destinations.takeProbe("billing", token(), 10_000)).toBe(false);
      await harness.ageDestinations(60_001);

      const taken = await together(harness, 20, (_, store) => store.destinations.takeProbe("billing", token(), 60_000));

      expect(taken.filter(Boolean)).toHaveLength(1);
      const { breaker } = await stateOf(harness, "billing");
      expect(breaker).toMatchObject({ state: "half-open", openings: 1 });
      expect(breaker.remainingMs).toBeGreaterThan(30_000);
      expect(breaker.remainingMs).toBeLessThanOrEqual(60_000);
    });

    test("closes under its probe, and under no other", async () => {
      await using harness = await open();
      const { destinations } = harness.store;
      await destinations.open("billing", OPENING);
      const probe = await halfOpen(harness, "billing");

      expect(await destinations.close("billing", token())).toBe(false);
      expect(await destinations.renewProbe("billing", token(), 10_000)).toBe(false);
      expect(await destinations.returnProbe("billing", token(), 0)).toBe(false);
      expect(await destinations.renewProbe("billing", probe, 10_000)).toBe(true);
      expect(await destinations.close("billing", probe)).toBe(true);

      expect((await stateOf(harness, "billing")).breaker).toEqual({
        state: "closed",
        openings: 0,
        remainingMs: 0,
        reason: null,
      });
      expect(await destinations.close("billing", probe)).toBe(false);
      expect(await destinations.takeProbe("billing", token(), 1000)).toBe(false);
    });

    test("opens again under its probe for twice as long, up to the longest time", async () => {
      await using harness = await open();
      const { destinations } = harness.store;
      await destinations.open("billing", { ...OPENING, openMs: 50_000, maxOpenMs: 150_000 });
      for (const [openings, lastsMs] of [
        [2, 100_000],
        [3, 150_000],
        [4, 150_000],
      ] as const) {
        const probe = await halfOpen(harness, "billing");
        const again = { ...OPENING, openMs: 50_000, maxOpenMs: 150_000 };
        expect(await destinations.open("billing", { ...again, probe: token() })).toBeUndefined();
        expect(await destinations.open("billing", again)).toBeUndefined();
        expect(await destinations.open("billing", { ...again, probe })).toBe(lastsMs);
        const { breaker } = await stateOf(harness, "billing");
        expect(breaker).toMatchObject({ state: "open", openings });
        expect(breaker.remainingMs).toBeLessThanOrEqual(lastsMs);
        expect(breaker.remainingMs).toBeGreaterThan(lastsMs - 20_000);
      }
    });

    test("lasts at least `atLeastMs`, and never overflows", async () => {
      await using harness = await open();
      const { destinations } = harness.store;
      await destinations.open("billing", { ...OPENING, factor: 0.5, atLeastMs: 50_000 });
      expect((await stateOf(harness, "billing")).breaker.remainingMs).toBeGreaterThan(30_000);
      await destinations.open("other", {
        ...OPENING,
        openMs: Number.MAX_SAFE_INTEGER,
        maxOpenMs: Number.MAX_VALUE,
        factor: 2,
      });
      expect((await stateOf(harness, "other")).breaker.state).toBe("open");
      await destinations.open("jitter", { ...OPENING, openMs: 100_000, maxOpenMs: 100_000, factor: 0.5 });
      expect((await stateOf(harness, "jitter")).breaker.remainingMs).toBeLessThanOrEqual(50_000);
    });

    test("counts its openings on while it has not been closed for long, and from 1 then", async () => {
      await using harness = await open();
      const { destinations } = harness.store;
      await destinations.open("billing", OPENING);
      await destinations.close("billing", await halfOpen(harness, "billing"));
      await destinations.open("billing", OPENING);
      expect((await stateOf(harness, "billing")).breaker.openings).toBe(2);
      await destinations.close("billing", await halfOpen(harness, "billing"));

      await harness.ageDestinations(OPENING.stableAfterMs + 1);

      await destinations.open("billing", OPENING);
      expect((await stateOf(harness, "billing")).breaker.openings).toBe(1);
    });

    test("gives its probe to somebody else when the lease has run out, or when it is given back", async () => {
      await using harness = await open();
      const { destinations } = harness.store;
      await destinations.open("billing", OPENING);
      const first = await halfOpen(harness, "billing", 60_000);
      expect(await destinations.takeProbe("billing", token(), 60_000)).toBe(false);

      await harness.ageDestinations(60_001);

      const second = token();
      expect((await stateOf(harness, "billing")).breaker.remainingMs).toBe(0);
      expect(await destinations.takeProbe("billing", second, 60_000)).toBe(true);
      expect(await destinations.renewProbe("billing", first, 60_000)).toBe(false);
      expect(await destinations.open("billing", { ...OPENING, probe: first })).toBeUndefined();
      expect(await destinations.close("billing", first)).toBe(false);
      expect(await destinations.returnProbe("billing", second, 0)).toBe(true);
      expect((await stateOf(harness, "billing")).breaker).toMatchObject({ state: "open", remainingMs: 0 });
      expect(await destinations.takeProbe("billing", token(), 60_000)).toBe(true);
    });

    test("keeps a probe that was given back for the time asked, without another opening", async () => {
      await using harness = await open();
      const { destinations } = harness.store;
      await destinations.open("billing", OPENING);

      expect(await destinations.returnProbe("billing", await halfOpen(harness, "billing"), 60_000)).toBe(true);

      const { breaker } = await stateOf(harness, "billing");
      expect(breaker).toMatchObject({ state: "open", openings: 1, reason: OPENING.reason });
      expect(breaker.remainingMs).toBeGreaterThan(30_000);
      expect(breaker.remainingMs).toBeLessThanOrEqual(60_000);
      expect(await destinations.takeProbe("billing", token(), 60_000)).toBe(false);
      await halfOpen(harness, "billing");
    });

    test("does not stay open, nor its probe away, for as long as the clock has been put back", async () => {
      await using harness = await open();
      const { destinations } = harness.store;
      await destinations.open("billing", OPENING);

      await harness.ageDestinations(-3_600_000);

      expect((await stateOf(harness, "billing")).breaker.remainingMs).toBe(0);
      expect(await destinations.takeProbe("billing", token(), 10_000)).toBe(true);
      await harness.ageDestinations(-3_600_000);
      expect(await destinations.takeProbe("billing", token(), 10_000)).toBe(true);
    });
  });
}

function exerciseReports(open: () => Promise<StoreHarness>): void {
  describe("reports about destinations", () => {
    test("are noted for all of them at once, the latest winning", async () => {
      await using harness = await open();
      const { destinations } = harness.store;
      await destinations.report([]);
      await destinations.report([
        { name: "a", succeededAgoMs: 0, failure: undefined, isSlow: false },
        { name: "b", succeededAgoMs: undefined, failure: { agoMs: 1000, reason: "status 500" }, isSlow: true },
      ]);
      const before = await stateOf(harness, "a");
      await destinations.report([
        { name: "b", succeededAgoMs: 0, failure: { agoMs: 60_000, reason: "older" }, isSlow: false },
        { name: "a", succeededAgoMs: 60_000, failure: { agoMs: 0, reason: "x".repeat(3000) }, isSlow: false },
      ]);

      const [a, b] = [await stateOf(harness, "a"), await stateOf(harness, "b")];
      expect(a.lastSuccessAt).toEqual(before.lastSuccessAt);
      expect(a.lastError).toBe("x".repeat(2000));
      expect(a).toMatchObject({ slowAt: null, isSlow: false, pause: null });
      expect(b).toMatchObject({ lastError: "status 500", isSlow: true });
      expect(b.lastSuccessAt?.getTime()).toBeGreaterThan(b.lastFailureAt?.getTime() ?? 0);
    });

    test("of one destination in one call count together, and slow counts for ten seconds", async () => {
      await using harness = await open();
      const { destinations } = harness.store;
      await destinations.report([
        { name: "a", succeededAgoMs: 9000, failure: { agoMs: 0, reason: "new" }, isSlow: false },
        { name: "a", succeededAgoMs: 0, failure: { agoMs: 9000, reason: "old" }, isSlow: true },
      ]);
      expect(await stateOf(harness, "a")).toMatchObject({ lastError: "new", isSlow: true });

      await harness.ageDestinations(10_001);

      const aged = await stateOf(harness, "a");
      expect(aged.isSlow).toBe(false);
      expect(aged.slowAt?.getTime()).toBeGreaterThanOrEqual(aged.lastSuccessAt?.getTime() ?? 0);
    });

    test("from many replicas at once about the same destinations all come in", async () => {
      await using harness = await open();
      const names = Array.from({ length: 30 }, (_, n) => `d${n}`);
      const report = (name: string) => ({ name, succeededAgoMs: 0, failure: undefined, isSlow: false });

      await together(harness, 20, (n, store) =>
        store.destinations.report((n % 2 === 0 ? names : [...names].reverse()).map(report)),
      );

      const states = await harness.store.destinations.states();
      expect(states.map(({ name }) => name).sort()).toEqual([...names].sort());
      expect(states.every(({ lastSuccessAt }) => lastSuccessAt !== null)).toBe(true);
    });

    test("replace what a clock that has been put back has left in the future", async () => {
      await using harness = await open();
      const { destinations } = harness.store;
      await destinations.report([{ name: "a", succeededAgoMs: 0, failure: { agoMs: 0, reason: "old" }, isSlow: true }]);
      await harness.ageDestinations(-3_600_000);

      await destinations.report([
        { name: "a", succeededAgoMs: 0, failure: { agoMs: 0, reason: "new" }, isSlow: false },
      ]);

      const state = await stateOf(harness, "a");
      expect(Math.abs(Date.now() - (state.lastSuccessAt?.getTime() ?? 0))).toBeLessThan(60_000);
      expect(state).toMatchObject({ lastError: "new", isSlow: false });
    });
  });
}

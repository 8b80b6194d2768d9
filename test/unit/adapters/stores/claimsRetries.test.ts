import { describe, expect, test } from "@jest/globals";
import type { OutboxClaims } from "../../../../src/adapters/stores/sql/claims.ts";
import type { Row } from "../../../../src/adapters/stores/sql/rows.ts";
import { except, makeFrontLong, only, passed, SCOPE, table } from "./claimsTable.ts";

describe("a retry in front of the cursor", () => {
  const FOUND = { rows: [{} as Row], more: false };

  /** Claims every 20 ms. @returns the looks for retries, by the ms at which they began */
  async function retryLooks({ claim, clock }: ReturnType<typeof table>, forMs: number, scope = SCOPE) {
    const startedAt = clock.monotonic();
    const times: number[] = [];
    while (clock.monotonic() < startedAt + forMs) {
      const ms = clock.monotonic() - startedAt;
      if ((await claim(scope)).some((look) => look.startsWith("retries"))) times.push(ms);
      clock.advance(20);
    }
    return times;
  }

  test("is looked for at its time, and once more for a clock that is behind", async () => {
    const it = await passed(SCOPE, { sweepMs: 400 });
    it.hints.retryIn(4000, { destination: "well" });

    expect(await retryLooks(it, 8000)).toEqual([4000, 4100]);
  });

  test("is looked for while a sweep of a long front goes on, which it leaves as it is, like the cursor", async () => {
    const it = await passed(SCOPE, { sweepMs: 20 });
    const { claim, clock, hints, state } = it;
    await makeFrontLong(it);
    while ((await claim(SCOPE))[0] !== "sweep 0 to 5000") clock.advance(100);
    hints.retryIn(200, { destination: "well" });
    clock.advance(200);
    state.retries.push(FOUND);

    expect(await claim(SCOPE)).toEqual(["retries 0 to 12000 within 5000"]);
    expect([state.more, state.goesOnInMs]).toEqual([true, 200]);
    expect(await claim(SCOPE)).toEqual(["end", "claim 12000"]);
    clock.advance(200);
    expect(await claim(SCOPE)).toContain("sweep 5000 to 10000");
  });

  test("is no reason to leave out the sweep that is due, though nothing was met and nothing has changed", async () => {
    const { claim, clock, hints, state } = await passed(SCOPE);
    state.free = [400];
    clock.advance(1000);
    expect(await claim(SCOPE)).toContain("sweep 0 to 1000");
    state.changes = 1;
    hints.retryIn(500, { destination: "well" });
    clock.advance(500);
    expect(await claim(SCOPE)).toContain("retries 0 to 1000 within 5000");
    clock.advance(1000);

    expect(await claim(SCOPE)).toContain("sweep 0 to 1000");
  });

  test("is looked for again at once where there were more than a claim takes", async () => {
    const { claim, clock, hints, state } = await passed(SCOPE, { sweepMs: 400, retriesMs: 10 });
    hints.retryIn(40, { destination: "well" });
    clock.advance(40);
    state.retries.push({ ...FOUND, more: true }, FOUND);

    expect(await claim(SCOPE)).toEqual(["retries 0 to 1000 within 5000"]);
    expect(await claim(SCOPE)).toEqual(["retries 0 to 1000 within 5010"]);
    expect(await claim(SCOPE)).toEqual(["claim 1000"]);
  });

  test("is not looked for again at once where a full look claimed nothing: its rows wait for others", async () => {
    const { claim, clock, hints, state } = await passed(SCOPE, { sweepMs: 400 });
    hints.retryIn(40, { destination: "well" });
    clock.advance(40);
    state.retries.push({ rows: [], more: true });

    expect(await claim(SCOPE)).toContain("retries 0 to 1000 within 5000");
    expect(await claim(SCOPE)).toEqual(["claim 1000"]);
  });

  test("is looked for a twentieth of the time at most, and ten times a second, where retries fall due all the time", async () => {
    const looks = async (retriesMs: number) => {
      const it = await passed(SCOPE, { sweepMs: 400, retriesMs });
      for (let delayMs = 0; delayMs < 30_000; delayMs += 10) it.hints.retryIn(delayMs, { destination: "well" });
      return await retryLooks(it, 10_000);
    };

    expect((await looks(0)).length).toBeLessThanOrEqual(100);
    expect((await looks(0)).length).toBeGreaterThan(70);
    expect((await looks(200)).length).toBe(3);
  });

  test("is looked for as far back as no claim has been made", async () => {
    const { claim, clock, hints } = await passed(SCOPE, { sweepMs: 400 });
    hints.retryIn(1000, { destination: "well" });
    clock.advance(60_000);
    hints.retryIn(1000, { destination: "well" });

    expect((await claim(SCOPE))[0]).toBe("retries 0 to 1000 within 64000");
  });

  test("is looked for by the scopes that hold its row when it is due, whatever they were when it failed", async () => {
    const it = await passed(only("ill"), { sweepMs: 400 });
    const another = { ...only("another"), destinations: ["another"] };
    await it.claim(another);
    it.hints.retryIn(200, { scope: "ill", destination: "ill" });
    expect(await retryLooks(it, 180, another)).toEqual([]);
    it.clock.advance(40);
    expect(await retryLooks(it, 20, another)).toEqual([]);
    expect(await retryLooks(it, 20, only("ill"))).toEqual([0]);

    it.hints.retryIn(800, { destination: "well" });
    // Takes 400 ms.
    await it.claim(SCOPE);
    expect((await it.claim(SCOPE)).join()).not.toContain("retries");
    it.clock.advance(420);
    expect((await it.claim(SCOPE)).join()).toContain("retries");

    // Claimed among others when it failed, and alone when it is due.
    it.hints.retryIn(800, { destination: "ill" });
    await it.claim(only("late"));
    it.clock.advance(420);
    expect((await it.claim(only("late"))).join()).toContain("retries");
    expect((await it.claim({ ...except(["ill"]), name: "all but ill" })).join()).not.toContain("retries");
  });

  test("is met by the claim itself where nothing is in front of the cursor", async () => {
    const it = await passed(SCOPE, { sweepMs: 400 });
    it.marks.setNewest("1000", { running: [], end: 2n, later: undefined, writers: undefined });
    it.hints.retryIn(40, { destination: "well" });

    expect(await retryLooks(it, 400)).toEqual([]);
  });
});

describe("a row that will be due again", () => {
  /** Tells which claims sweep, after `tell`. */
  async function sweeping(tell: (hints: OutboxClaims<string>["hints"]) => void): Promise<readonly string[]> {
    const scopes = [except(["ill"]), { ...except(["ill", "slow"]), name: "further others" }, only("ill"), only("slow")];
    const { claim, clock, hints } = table();
    for (const scope of scopes) await claim(scope);
    clock.advance(1000);
    for (const scope of scopes) await claim(scope);
    hints.unscoped.frontIsBlocked("500", 0);
    tell(hints);
    clock.advance(100);
    for (const scope of scopes) expect((await claim(scope)).join()).toMatch(/^claim/);
    expect(hints.unscoped.startsAtMark()).toBe(false);
    clock.advance(120);
    const sweeps: string[] = hints.unscoped.startsAtMark() ? ["all"] : [];
    for (const scope of scopes) {
      if ((await claim(scope)).includes("sweep 0 to 1000")) sweeps.push(`${scope.which} ${scope.name}`);
    }
    return sweeps;
  }

  test("is looked for by the scope that claims it alone, and by claims of all rows", async () => {
    expect(await sweeping((hints) => hints.retryIn(200, { scope: "ill", destination: "ill" }))).toEqual([
      "all",
      "only ill",
    ]);
  });

  test("is looked for by every scope that leaves some destinations out", async () => {
    expect(await sweeping((hints) => hints.retryIn(200, { destination: "well" }))).toEqual([
      "all",
      "except others",
      "except further others",
    ]);
  });

  test("is looked for in time, however many others have come due while nobody claimed", async () => {
    const { claim, clock, hints } = await passed(SCOPE);
    for (let n = 0; n < 100; n += 1) {
      hints.retryIn(50, { destination: "well" });
      clock.advance(100);
    }
    hints.retryIn(200, { destination: "well" });
    hints.retryIn(400, { destination: "well" });

    const sweeps: number[] = [];
    for (let ms = 0; ms < 900; ms += 20) {
      if ((await claim(SCOPE)).includes("sweep 0 to 1000")) sweeps.push(ms);
      clock.advance(20);
    }
    expect(sweeps).toEqual([0, 200, 400]);
  });

  test("is looked for by all when it was taken back from a replica", async () => {
    const { claim, clock, hints } = await passed(only("ill"));
    hints.sweepSoon();
    clock.advance(20);

    expect(await claim(only("ill"))).toEqual(["sweep 0 to 1000", "claim 1000"]);
  });
});

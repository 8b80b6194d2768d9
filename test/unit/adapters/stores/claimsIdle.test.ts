import { describe, expect, test } from "@jest/globals";
import type { MessageId } from "../../../../src/model/rows.ts";
import type { ClaimScope } from "../../../../src/ports/store.ts";
import { claimRequest } from "../../../conformance/store/harness.ts";
import { SCOPE, table } from "./claimsTable.ts";

describe("where a claim of a scope has met nothing", () => {
  /** Claims ten times a second. @returns what was asked of the table, by the ms at which it was */
  async function looksOf({ claim, clock }: ReturnType<typeof table>, forMs: number, scope = SCOPE) {
    const startedAt = clock.monotonic();
    const looks: (readonly [ms: number, look: string])[] = [];
    while (clock.monotonic() < startedAt + forMs) {
      const ms = clock.monotonic() - startedAt;
      looks.push(...(await claim(scope)).map((look) => [ms, look] as const));
      clock.advance(100);
    }
    return looks;
  }

  async function idle(options = {}, scope = SCOPE) {
    const it = table(options);
    it.state.lastDue = it.state.end - 1;
    it.state.changes = 1;
    await it.claim(scope);
    it.clock.advance(1000);
    await it.claim(scope);
    return it;
  }

  test("the next one is made where something is due behind it, of whatever scope", async () => {
    const it = await idle();

    expect(await it.claim(SCOPE)).toEqual([]);
    it.state.lastDue = 1000;
    expect(await it.claim(SCOPE)).toContain("claim 1000");
  });

  test("it sweeps when something has changed, and as seldom as ever", async () => {
    const it = await idle({ sweepMs: 400 });
    expect(await looksOf(it, 20_000)).toEqual(
      // The first answer comes when the first sweep would.
      Array.from({ length: 13 }, (_, n) => [8000 + 1000 * n, "changed?"] as const).filter(([ms]) => ms < 20_000),
    );

    const looks: (readonly [number, string])[] = [];
    for (let ms = 0; ms < 20_000; ms += 100) {
      it.state.changes = 2 + ms;
      looks.push(...(await looksOf(it, 100)).map(([, look]) => [ms, look] as const));
    }
    // A sweep lasts longer than the pass in which it is made.
    const sweeps = looks.filter(([, look]) => look === "sweep 0 to 1000");
    expect(sweeps).toHaveLength(3);
    expect(looks.filter(([, look]) => look === "changed?")).toHaveLength(3);
  });

  test("asking what has changed takes a twentieth of the time at most", async () => {
    const it = await idle({ changedMs: 200 });
    const asked = (await looksOf(it, 13_000)).map(([ms]) => ms);

    expect(asked).toEqual([1000, 5200, 9400]);
  });

  test("a retry that falls due is a change, as the database sees it", async () => {
    const it = await idle({ sweepMs: 400 });
    it.hints.retryIn(9000, { destination: "well" });
    it.clock.advance(9000);
    it.state.changes = 2;

    expect(await it.claim(SCOPE)).toEqual(["retries 0 to 1000 within 5000", "changed?", "sweep 0 to 1000"]);
  });

  test.each<[string, ClaimScope]>([
    ["other destinations", { ...SCOPE, destinations: ["another"] }],
    ["more destinations", { ...SCOPE, destinations: ["stuck", "another"] }],
  ])("it sweeps for %s under the same name", async (_, changed) => {
    const it = await idle();
    it.clock.advance(1000);

    expect(await it.claim(changed)).toContain("sweep 0 to 1000");
  });

  test.each<[string, ClaimScope]>([
    ["keys", { ...SCOPE, exceptKeys: ["k"] }],
    ["rows", { ...SCOPE, exceptIds: [claimRequest().token as unknown as MessageId] }],
  ])("it sweeps where it left out %s", async (_, scope) => {
    const it = await idle({}, scope);
    it.clock.advance(1000);

    expect(await it.claim(SCOPE)).toContain("sweep 0 to 1000");
  });

  test("it sweeps when the sweep before met a row, and where nobody can tell what has changed", async () => {
    const it = await idle();
    it.state.changes = 2;
    it.state.free = [400];
    it.clock.advance(1000);
    expect(await it.claim(SCOPE)).toEqual(expect.arrayContaining(["changed?", "sweep 0 to 1000"]));
    it.clock.advance(1000);
    expect(await it.claim(SCOPE)).toContain("sweep 0 to 1000");

    it.state.free = [];
    it.state.changes = undefined;
    for (let n = 0; n < 2; n += 1) {
      it.clock.advance(1000);
      expect(await it.claim(SCOPE)).toContain("sweep 0 to 1000");
    }
  });
});

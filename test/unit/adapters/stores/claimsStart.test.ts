import { describe, expect, test } from "@jest/globals";
import { except, makeFrontLong, only, passed, SCOPE, table } from "./claimsTable.ts";

describe("where a claim of a scope starts", () => {
  test("is the first row that was set back below the mark, where a sweep is due and the mark is past the cursor", async () => {
    const { claim, clock, marks, state } = await passed(SCOPE);
    state.end = 2000;
    marks.setNewest("1500", { running: [], end: 2n, later: undefined, writers: undefined });
    clock.advance(1000);

    expect(await claim(SCOPE)).toEqual(["sweep 1500 to 1500", "end", "claim 1500"]);
    expect(await claim(SCOPE)).toEqual(["claim 1500"]);
    clock.advance(1000);
    expect(await claim(SCOPE)).toContain("sweep 1500 to 1500");
  });

  test("is the mark, then the end of the table, and what is in front is swept when a second has passed", async () => {
    const { claim, clock } = table();

    expect(await claim(SCOPE)).toEqual(["end", "sweep 0"]);
    clock.advance(999);
    expect(await claim(SCOPE)).toEqual(["claim 1000"]);
    clock.advance(1);
    expect(await claim(SCOPE)).toEqual(["sweep 0 to 1000", "end", "claim 1000"]);
    expect(await claim(SCOPE)).toEqual(["claim 1000"]);
  });

  test("is the end that a long sweep began with", async () => {
    const { claim } = table({ sweepMs: 1000 });

    expect(await claim(SCOPE)).toEqual(["end", "sweep 0"]);
    expect(await claim(SCOPE)).toContain("claim 1000");
  });

  test("is the first row that was met, where that lies in front of the end of a second ago", async () => {
    const { claim, state } = await passed(SCOPE);
    state.free = [1500];
    expect(await claim(SCOPE)).toEqual(["claim 1000"]);
    state.limit = 1;
    state.free = [400, 700, 1500];
    const swept = await passed(SCOPE);
    Object.assign(swept.state, state);
    swept.clock.advance(1000);

    expect(await swept.claim(SCOPE)).toContain("sweep 0 to 1000");
    swept.state.free = [700, 1500];
    expect(await swept.claim(SCOPE)).toContain("claim 400");
    swept.state.free = [1500];
    expect(await swept.claim(SCOPE)).toContain("claim 700");
    expect(await swept.claim(SCOPE)).toContain("claim 1000");
  });

  test("is the first row that a sweep left for its size", async () => {
    const { claim, clock, state } = await passed(SCOPE);
    state.free = [400];
    state.tooLarge = 1;
    clock.advance(1000);

    expect(await claim(SCOPE)).toContain("sweep 0 to 1000");
    expect(await claim(SCOPE)).toContain("claim 400");
  });

  test("follows what is appended a second behind, with a look for the end once a second and only where nothing was met", async () => {
    const { claim, clock, state } = await passed(SCOPE, { sweepMs: 400 });
    const starts: string[] = [];
    for (let ms = 0; ms < 3000; ms += 100) {
      state.end += 100;
      starts.push(...(await claim(SCOPE)));
      clock.advance(100);
    }

    expect(starts.filter((look) => look === "end")).toHaveLength(2);
    const froms = starts.filter((look) => look !== "end").map((look) => Number(look.replace("claim ", "")));
    expect(froms).toHaveLength(30);
    for (const [n, from] of froms.entries()) {
      // What was appended in the last second is looked at again, and nothing that was before the last two.
      expect(from).toBeLessThanOrEqual(Math.max(1000, 1000 + (n - 9) * 100));
      expect(from).toBeGreaterThanOrEqual(1000 + (n - 21) * 100);
    }

    state.free = [state.end];
    await claim(SCOPE);
    for (let ms = 0; ms < 1500; ms += 100) {
      expect(await claim(SCOPE)).not.toContain("end");
      clock.advance(100);
    }
  });

  test("follows the rows that are met a second behind", async () => {
    const { claim, clock, state } = await passed(SCOPE, { sweepMs: 400 });
    const froms: number[] = [];
    for (let ms = 0; ms < 3000; ms += 100) {
      state.free = [2000 + ms];
      const [look] = await claim(SCOPE);
      froms.push(Number(look?.replace("claim ", "")));
      clock.advance(100);
    }

    expect(froms.slice(0, 10)).toEqual(Array.from({ length: 10 }, () => 1000));
    for (const [n, from] of froms.entries()) {
      expect(from).toBeLessThanOrEqual(Math.max(1000, 2000 + (n - 10) * 100));
      if (n > 22) expect(from).toBeGreaterThanOrEqual(2000 + (n - 22) * 100);
    }
  });

  test("stays while the front is swept: after a second, and later where that takes long", async () => {
    const sweeps = async (sweepMs: number, forMs: number) => {
      const { claim, clock } = await passed(SCOPE, { sweepMs });
      const startedAt = clock.monotonic();
      const times: number[] = [];
      while (clock.monotonic() < startedAt + forMs) {
        const ms = clock.monotonic() - startedAt;
        const looks = await claim(SCOPE);
        expect(looks).toContain("claim 1000");
        if (looks.includes("sweep 0 to 1000")) times.push(ms);
        clock.advance(100);
      }
      return times;
    };

    expect(await sweeps(0, 2500)).toEqual([1000, 2000]);
    expect(await sweeps(400, 20_000)).toEqual([8000, 16_400]);
  });

  test("stays while a long front is swept part by part, for a twentieth of the time", async () => {
    const it = await passed(SCOPE, { sweepMs: 20 });
    const { claim, clock } = it;
    await makeFrontLong(it);
    const sweeps: string[] = [];
    const startedAt = clock.monotonic();
    for (; clock.monotonic() < startedAt + 2000; clock.advance(20)) {
      const [first] = await claim(SCOPE);
      if (first?.startsWith("sweep")) sweeps.push(`${first} at ${clock.monotonic() - startedAt}`);
    }
    expect(sweeps).toHaveLength(3);
    expect(sweeps.map((sweep) => sweep.replace(/ at .*/, ""))).toEqual([
      "sweep 5000 to 10000",
      "sweep 10000 to 12000",
      "sweep 0 to 5000",
    ]);
  });

  test("tells when a sweep goes on, until it has come to the cursor", async () => {
    const it = await passed(SCOPE, { sweepMs: 20 });
    const { claim, clock, state } = it;
    expect(state.goesOnInMs).toBeUndefined();
    await makeFrontLong(it);
    while ((await claim(SCOPE))[0] !== "sweep 0 to 5000") clock.advance(100);
    expect(state.goesOnInMs).toBe(400);
    clock.advance(300);
    await claim(SCOPE);
    expect(state.goesOnInMs).toBe(100);
    clock.advance(100);
    expect(await claim(SCOPE)).toContain("sweep 5000 to 10000");
    clock.advance(400);
    expect(await claim(SCOPE)).toContain("sweep 10000 to 12000");
    expect(state.goesOnInMs).toBeUndefined();
  });

  test("is where another scope has come that leaves out fewer destinations, and the front is swept again", async () => {
    const { claim } = await passed({ ...except(["a"]), name: "all but a" });
    await claim({ ...except(["b", "c"]), name: "all but b, c" });

    expect(await claim({ ...except(["a", "b"]), name: "all but a, b" })).toEqual(["sweep 0 to 1000", "claim 1000"]);
    expect(await claim({ ...except(["c"]), name: "all but c" })).toEqual(["end", "sweep 0"]);
    expect(await claim({ ...only("a"), destinations: ["a"] })).toEqual(["end", "sweep 0"]);
  });

  test("never goes back because rows behind it are gone", async () => {
    const { claim, state } = await passed(SCOPE, { sweepMs: 400 });
    state.end = 1;

    for (let n = 0; n < 3; n += 1) expect(await claim(SCOPE)).toContain("claim 1000");
  });

  test("is remembered by the name of the scope, whatever destinations it has by now", async () => {
    const { claim } = await passed(except(["a", "b"]));

    expect(await claim(except(["a", "b", "c"]))).toEqual(["claim 1000"]);
    expect(await claim({ ...except(["d"]), name: "another" })).toEqual(["end", "sweep 0"]);
    expect(await claim(except(["a"]))).toEqual(["claim 1000"]);
  });

  test("is forgotten of the scope that was used longest ago, where there are very many", async () => {
    const { claim } = await passed(SCOPE);
    for (let n = 0; n < 998; n += 1) await claim(only(`destination-${n}`));
    expect(await claim(SCOPE)).toEqual(["claim 1000"]);
    for (let n = 1000; n < 2000; n += 1) await claim(only(`destination-${n}`));
    expect(await claim(SCOPE)).toEqual(["end", "sweep 0"]);
  });

  test("is never below the mark, beside which rows that are set back would not count for the order of their keys", async () => {
    const { claim, clock, hints, marks, state } = await passed(SCOPE, { sweepMs: 400 });
    state.free = [900];
    hints.unscoped.frontIsBlocked("500", 1000);
    clock.advance(1000);
    marks.setNewest("1500", { running: [], end: 2n, later: undefined, writers: undefined });

    expect(await claim(SCOPE)).toContain("claim 1500");
    expect(await claim()).toEqual(["past blocked keys 1500"]);
  });

  test("is forgotten when the table has gone back", async () => {
    const { claim, marks, state } = await passed(SCOPE);
    marks.forget();
    state.end = 10;

    expect(await claim(SCOPE)).toEqual(["end", "sweep 0"]);
  });
});

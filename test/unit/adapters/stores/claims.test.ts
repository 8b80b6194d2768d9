import { describe, expect, test } from "@jest/globals";
import { type ClaimScan, OutboxClaims } from "../../../../src/adapters/stores/sql/claims.ts";
import { noLowWater } from "../../../../src/adapters/stores/sql/lowWaterMarks.ts";
import type { Row, StatementRunner, Values } from "../../../../src/adapters/stores/sql/rows.ts";
import type { MessageId } from "../../../../src/model/rows.ts";
import type { ClaimScope } from "../../../../src/ports/store.ts";
import { claimRequest } from "../../../conformance/store/harness.ts";
import { ManualClock } from "../../../support/recorders.ts";

const except = (destinations: readonly string[]): ClaimScope => ({
  name: "others",
  which: "except",
  destinations,
  exceptKeys: [],
});
const only = (name: string): ClaimScope => ({ name, which: "only", destinations: ["ill"], exceptKeys: [] });

/** A table that tells where it was looked at; a look costs `sweepMs` where it does not begin at the cursor. */
function table({ sweepMs = 0, retriesMs = 0, changedMs = 0, pending = 0 } = {}) {
  const clock = new ManualClock();
  const state = {
    /** The position behind the last row. */
    end: 1000,
    /** Of free rows, in ascending order. */
    free: [] as number[],
    /** Of the last row that is due, whoever may have it. */
    lastDue: Number.POSITIVE_INFINITY,
    /** How many times something has changed; undefined where nobody can tell. */
    changes: undefined as number | undefined,
    /** Rows of which one has the position of its number. */
    pending,
    /** Most rows of a claim, which takes those that are free. */
    limit: Number.POSITIVE_INFINITY,
    /** Free rows that are too large for a claim. */
    tooLarge: 0,
    /** What claims of due retries find, one after another. */
    retries: [] as Pick<ClaimScan, "rows" | "more">[],
    /** As the last claim told. */
    goesOnInMs: undefined as number | undefined,
    more: false,
  };
  const looks: string[] = [];
  let scan: ClaimScan = { rows: [], more: false, heldBack: 0, rowsRead: 0, first: undefined };
  const look = (what: string, from: unknown, tookMs: number, to = Number.POSITIVE_INFINITY): void => {
    looks.push(to > state.end ? `${what} ${from}` : `${what} ${from} to ${to}`);
    const found = state.free.filter((position) => position >= Number(from) && position < to);
    clock.advance(tookMs);
    scan = {
      rows: [],
      more: found.length > state.limit,
      heldBack: 0,
      rowsRead: state.tooLarge,
      first: found[0] === undefined ? undefined : String(found[0]),
      seen: state.changes === undefined ? undefined : String(state.changes),
    };
  };
  /** Each statement by its name, with the rows that it answers. */
  const statements: Readonly<Record<string, (values: Values) => readonly Row[]>> = {
    "in order": ({ from }) => answerOf(() => look("in order", from, 0)),
    "past blocked keys": ({ from }) => answerOf(() => look("past blocked keys", from, 0)),
    claim: ({ from }) => answerOf(() => look("claim", from, 0)),
    sweep: ({ from, to }) => answerOf(() => look("sweep", from, sweepMs, Number(to))),
    retries({ from, to, withinMs }) {
      looks.push(`retries ${from} to ${to} within ${withinMs}`);
      clock.advance(retriesMs);
      const { rows, more } = state.retries.shift() ?? { rows: [], more: false };
      scan = { rows, more, heldBack: 0, rowsRead: rows.length, first: undefined, seen: String(state.changes) };
      return [];
    },
    "pending behind"({ from, rows }) {
      const position = Number(from) + Number(rows);
      return position < state.pending ? [{ sequence: String(position) }] : [];
    },
    end: () => {
      looks.push("end");
      return [{ end: String(state.end) }];
    },
    due: ({ from }) => [{ answer: state.lastDue >= Number(from) }],
    changed({ seen }) {
      looks.push("changed?");
      clock.advance(changedMs);
      return [{ answer: seen !== String(state.changes) }];
    },
  };
  const answerOf = (work: () => void): readonly Row[] => {
    work();
    return [];
  };
  const run = async (name: string, values: Values = {}) => statements[name]?.(values) ?? [];
  const runner: StatementRunner<string> = {
    run,
    runAll: async (name, values) => [await run(name, values)],
    runAndRollBack: async () => {},
  };
  const unscoped = {
    claimInOrder: () => "in order",
    claimPastBlockedKeys: () => "past blocked keys",
    sweepPastBlockedKeys: "past blocked keys",
  };
  const scoped = {
    claim: () => "claim",
    sweep: "sweep",
    sweepOn: "sweep",
    claimRetries: "retries",
    dueBehind: "due behind",
  };
  const lowWater = noLowWater(clock);
  const claims = new OutboxClaims<string>(
    runner,
    {
      ...unscoped,
      withoutSome: unscoped,
      only: scoped,
      except: scoped,
      dueBehind: "due behind",
      trial: "trial",
      due: "due",
      dueFrom: "due",
      mayHaveChanged: "changed",
      pendingBehind: "pending behind",
      end: "end",
      dialect: { scanOf: () => scan },
    },
    lowWater,
    clock,
  );
  const { hints } = claims;
  return {
    clock,
    hints,
    marks: lowWater.marks,
    state,
    /** Claims. @returns what was asked of the table for it */
    async claim(scope?: ClaimScope): Promise<readonly string[]> {
      const { goesOnInMs, more } = await claims.claim(claimRequest({ scope }));
      Object.assign(state, { goesOnInMs, more });
      return looks.splice(0);
    },
  };
}

/** A table whose rows are all passed: a claim begins behind them. */
async function passed(scope: ClaimScope, options = {}) {
  const it = table(options);
  await it.claim(scope);
  it.clock.advance(1000);
  await it.claim(scope);
  return it;
}

const SCOPE = except(["stuck"]);

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
    const { claim, clock, state } = await passed(SCOPE, { sweepMs: 20 });
    Object.assign(state, { end: 12_000, pending: 12_000 });
    await claim(SCOPE);
    for (let n = 0; n < 30; n += 1) {
      clock.advance(100);
      await claim(SCOPE);
    }
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
    const { claim, clock, state } = await passed(SCOPE, { sweepMs: 20 });
    expect(state.goesOnInMs).toBeUndefined();
    Object.assign(state, { end: 12_000, pending: 12_000 });
    await claim(SCOPE);
    for (let n = 0; n < 30; n += 1) {
      clock.advance(100);
      await claim(SCOPE);
    }
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
    const { claim, clock, hints, state } = await passed(SCOPE, { sweepMs: 20 });
    Object.assign(state, { end: 12_000, pending: 12_000 });
    await claim(SCOPE);
    for (let n = 0; n < 30; n += 1) {
      clock.advance(100);
      await claim(SCOPE);
    }
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

import { describe, expect, test } from "@jest/globals";
import type { ClaimedRow, Outcome } from "../../../../src/model/rows.ts";
import type { ClaimResult } from "../../../../src/ports/store.ts";
import { gatesOf } from "../../../support/gates.ts";
import { ManualClock } from "../../../support/recorders.ts";
import { outboxRow, type ScriptedOutbox } from "../../../support/scriptedOutbox.ts";
import { retry, sent, settleDown, setup as setUpPoller } from "./pollerSetup.ts";

/** A poller of rows whose topic is the name of their destination; each delivery is ended by hand. */
function setup(closed: ReadonlySet<string> = new Set()) {
  const clock = new ManualClock();
  const begun: { row: ClaimedRow; end: (kind: "sent" | "retry") => Promise<void> }[] = [];
  const deliver = (row: ClaimedRow) =>
    new Promise<Outcome>((resolve) => {
      const end = async (kind: "sent" | "retry") => {
        resolve(kind === "sent" ? sent(row) : retry(row));
        await settleDown();
      };
      begun.push({ row, end });
    });
  const { store, poller, wakes } = setUpPoller(deliver, {
    destinationOf: ({ topic }) => topic ?? undefined,
    gates: Object.assign(gatesOf({ clock }), {
      mayBegin: (destination: string) => !closed.has(destination),
      rowsWanted: (destination: string) => (closed.has(destination) ? 0 : undefined),
    }),
    destinations: ["a", "b"],
    batchSize: 20,
    clock,
    wait: async () => {},
  });
  const rows = (topic: string, count: number) =>
    Array.from({ length: count }, (_, n) => outboxRow({ topic, key: `${topic}-${n}` }));
  const scopes = () => store.claims.map(({ scope }) => scope?.name ?? "all");
  return { store, clock, begun, poller, rows, scopes, wakes };
}

/** The same, after a delivery to `a` has succeeded. */
async function proven(): Promise<ReturnType<typeof setup>> {
  const made = setup();
  const { store, begun, poller, rows } = made;
  store.batches.push(rows("a", 1));
  await poller.pass();
  await begun[0]?.end("sent");
  begun.length = 0;
  store.claims.length = 0;
  return made;
}

/** What the second claim from now on gets instead of the next batch. */
function answerSecondClaim(store: ScriptedOutbox, answer: () => Promise<ClaimResult>): void {
  const claim = store.claim.bind(store);
  let claims = 0;
  store.claim = (request) => {
    claims += 1;
    if (claims !== 2) return claim(request);
    store.claims.push(request);
    return answer();
  };
}

describe("a poller of two destinations", () => {
  test("looks past the rows of one that wait, for those of the other", async () => {
    const { store, begun, poller, rows, scopes } = await proven();
    store.batches.push(rows("a", 20), rows("b", 5));
    await poller.pass();
    await settleDown();

    expect(scopes().slice(0, 2)).toEqual(["all", "all but a"]);
    expect(store.claims[1]).toMatchObject({
      limit: 10,
      scope: { which: "except", destinations: ["a"], exceptKeys: rows("a", 20).map(({ key }) => key) },
    });
    expect(begun.map(({ row }) => row.topic)).toEqual(["a", "a", "b"]);
  });

  test("leaves one without any success out of the usual claim while its first delivery lasts, and claims again after it", async () => {
    const { store, begun, poller, rows, scopes, wakes } = setup();
    store.batches.push(rows("a", 20), rows("b", 1));
    expect(await poller.pass()).toBe("again");
    await poller.pass();
    expect(scopes()).toEqual(["all", "all but a"]);
    expect(begun.map(({ row }) => row.topic)).toEqual(["a", "b"]);
    expect(wakes()).toBe(0);
    await begun[0]?.end("sent");
    expect(wakes()).toBe(1);
    await poller.pass();
    for (let n = 2; n < 12; n += 1) await begun[n]?.end("sent");
    expect(wakes()).toBe(2);
    store.claims.length = 0;
    await poller.pass();
    expect(scopes()[0]).toBe("all");
  });

  test("looks again a moment after it found nothing, and asks for a pass by then", async () => {
    const { store, clock, poller, rows, scopes } = await proven();
    expect(poller.nextPassWithinMs).toBe(Number.POSITIVE_INFINITY);
    store.batches.push(rows("a", 20));
    await poller.pass();
    expect(poller.nextPassWithinMs).toBe(20);
    await poller.pass();
    await settleDown();
    clock.advance(20);
    await poller.pass();

    expect(scopes()).toEqual(["all", "all but a", "all but a"]);
  });

  test("asks for a pass when the database has more to look through for the usual claim, and no sooner", async () => {
    const { store, clock, poller } = setup();
    const claim = store.claim.bind(store);
    store.claim = async (request) => ({
      ...(await claim(request)),
      goesOnInMs: store.claims.length === 1 ? 300 : undefined,
    });
    await poller.pass();
    expect(poller.nextPassWithinMs).toBe(300);
    clock.advance(100);
    expect(poller.nextPassWithinMs).toBe(200);
    await poller.pass();
    expect(poller.nextPassWithinMs).toBe(Number.POSITIVE_INFINITY);
  });

  test("gives the rows of one that hangs back, and claims a few of them in a scope of their own", async () => {
    const { store, clock, begun, poller, rows, scopes } = setup();
    const [first, ...others] = rows("a", 20);
    store.batches.push(first === undefined ? [] : [first, ...others]);
    await poller.pass();
    clock.advance(1001);
    await poller.pass();
    await settleDown();

    expect(store.settled.map(({ id, kind }) => [id, kind])).toEqual(others.map(({ id }) => [id, "release"]));
    store.claims.length = 0;
    await poller.pass();
    expect(scopes()).toEqual(["all but a"]);
    expect(store.claims[0]).toMatchObject({ limit: 20, scope: { destinations: ["a"], exceptKeys: ["a-0"] } });

    store.claims.length = 0;
    await begun[0]?.end("retry");
    await poller.pass();
    expect(scopes()).toEqual(["only a", "all but a"]);
    expect(store.claims[0]).toMatchObject({ limit: 2, scope: { which: "only", destinations: ["a"] } });
    expect(store.settled.at(-1)).toMatchObject({ kind: "retry", scope: "only a" });
  });

  test("claims more for one whose rows it found beyond the others when few are left", async () => {
    const { store, clock, begun, poller, rows, scopes } = await proven();
    store.batches.push(rows("a", 20), rows("b", 3));
    await poller.pass();
    await settleDown();
    const [, , ofB] = begun;
    expect(ofB?.row.topic).toBe("b");
    clock.advance(20);
    store.claims.length = 0;
    await ofB?.end("sent");
    expect(scopes()).toEqual(["only b", "all but a, b"]);
  });

  test("makes the usual claim while one beside it hangs", async () => {
    const { store, begun, poller, rows, scopes } = await proven();
    store.batches.push(rows("a", 20), rows("b", 1));
    answerSecondClaim(store, () => new Promise(() => {}));
    await poller.pass();
    expect(scopes()).toEqual(["all", "all but a"]);
    for (let n = 0; n < 11; n += 1) await begun[n]?.end("sent");
    await poller.pass();
    expect(scopes()).toEqual(["all", "all but a", "all"]);
    expect(begun.at(-1)?.row.topic).toBe("b");
  });

  test("makes no further claims after one beside the usual one has failed, until a pass has told of it", async () => {
    const { store, clock, poller, rows, scopes, wakes } = await proven();
    store.batches.push(rows("a", 20));
    answerSecondClaim(store, () => Promise.reject(new Error("the connection is lost")));
    await poller.pass();
    await settleDown();
    expect([scopes(), wakes()]).toEqual([["all", "all but a"], 1]);
    await expect(poller.pass()).rejects.toThrow("the connection is lost");
    expect(scopes()).toHaveLength(2);
    clock.advance(20);
    await poller.pass();
    expect(scopes()).toEqual(["all", "all but a", "all but a"]);
  });

  test("gives the rows of one that closes back, begins none of them, and claims past it", async () => {
    const closed = new Set<string>();
    const { store, begun, poller, rows, scopes } = setup(closed);
    const ofA = rows("a", 5);
    store.batches.push(ofA, rows("b", 1));
    await poller.pass();
    expect(begun.map(({ row }) => row.topic)).toEqual(["a"]);
    closed.add("a");
    await begun[0]?.end("sent");
    expect(begun).toHaveLength(1);
    await poller.pass();
    await settleDown();

    expect(store.outcomes()).toEqual(ofA.map(({ id }, n) => [id, n === 0 ? "sent" : "release"]));
    expect(scopes()).toEqual(["all", "all but a"]);
    expect(begun.map(({ row }) => row.topic)).toEqual(["a", "b"]);
  });

  test("gives rows of a closed one back that a claim returns all the same, with those behind them", async () => {
    const { store, begun, poller } = setup(new Set(["a"]));
    const [first, behind, other] = [
      outboxRow({ topic: "a", key: "k" }),
      outboxRow({ topic: "b", key: "k" }),
      outboxRow({ topic: "b", key: "other" }),
    ] as const;
    store.batches.push([first, behind, other]);
    await poller.pass();
    await settleDown();

    expect(begun.map(({ row }) => row.id)).toEqual([other.id]);
    expect(store.outcomes()).toEqual([
      [first.id, "release"],
      [behind.id, "release"],
    ]);
  });
});

import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import { StoreError } from "../../src/model/errors.ts";
import type { ClaimToken, MessageId } from "../../src/model/rows.ts";
import type { PullClaimRequest } from "../../src/ports/pullStore.ts";
import { inboxRow } from "../conformance/store/harness.ts";
import { ids as idsOf, pullRequest } from "../conformance/store/pullSupport.ts";
import { composed, twoCells } from "../support/cells.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { type PostgresHarness, postgresHarnesses } from "../support/postgresHarness.ts";

failOnLeaks();

const withCells = twoCells(postgresHarnesses());

describe("pull clients of two cells", () => {
  const pulled = (count: number, aggregateId: string | null = null) =>
    Array.from({ length: count }, () => inboxRow({ consumption: "pull", aggregateId }));

  test("take from both in turn, each aggregate in order", async () => {
    await withCells(async ({ a, b, store }) => {
      const [inA, inB] = [
        [...pulled(3), ...pulled(2, "x")],
        [...pulled(3), ...pulled(2, "y")],
      ];
      await a.store.inbox.insert(inA);
      await b.store.inbox.insert(inB);
      const claimed: MessageId[] = [];
      for (let n = 0; n < 10; n += 1) {
        const { rows } = await store.pull.claim(pullRequest({ limit: 1, token: randomUUID() as ClaimToken }));
        claimed.push(...idsOf(rows));
      }
      const cellOf = (id: MessageId) => (idsOf(inA).includes(id) ? "a" : "b");
      // The second row of an aggregate waits for the acknowledgement of the first one.
      expect(claimed.map(cellOf).join("")).toBe("abababab");
      expect(claimed.filter((id) => cellOf(id) === "a")).toEqual(idsOf(inA.slice(0, 4)));
      expect(claimed.filter((id) => cellOf(id) === "b")).toEqual(idsOf(inB.slice(0, 4)));
    });
  });

  test("get a token of the rows that they got, with which any process closes them", async () => {
    await withCells(async ({ a, b, store }) => {
      for (const { store } of [a, b]) await store.inbox.insert(pulled(3));
      const source = "orders";
      // Another process, which did not make the claims.
      const other = composed([a, b]).pull;
      for (let n = 0; n < 2; n += 1) {
        const { token, rows } = await store.pull.claim(pullRequest({ limit: 5 }));
        const [first, second, third] = idsOf(rows) as [MessageId, MessageId, MessageId];
        expect(rows).toHaveLength(3);
        expect(await other.extend({ source, token, ids: null }, 60_000)).toHaveLength(3);
        expect(await other.acknowledge({ source, token, ids: [first] })).toEqual([first]);
        const options = { delayMs: 60_000, reason: "no", maxAttempts: 5 };
        expect((await store.pull.reject({ source, token, ids: [second] }, options)).retried).toEqual([second]);
        expect(await other.acknowledge({ source, token, ids: null })).toEqual([third]);
        expect(await store.pull.release({ source, token, ids: null })).toEqual([]);
      }
    });
  });

  test("close no message that a cell claimed for them and that they never got", async () => {
    await withCells(async ({ a, b, store }) => {
      for (const { store } of [a, b]) await store.inbox.insert(pulled(3));
      // The connection breaks behind the commit.
      const claim = async (request: PullClaimRequest) => {
        expect((await a.store.pull.claim(request)).rows).toHaveLength(3);
        throw new StoreError("unavailable", "inbox.pull.claim: the connection was lost");
      };
      const pull = new Proxy(a.store.pull, { get: (it, key) => (key === "claim" ? claim : Reflect.get(it, key)) });
      const lossy = new Proxy(a.store, { get: (it, key) => (key === "pull" ? pull : Reflect.get(it, key)) });
      const given = await composed([{ ...a, store: lossy }, b]).pull.claim(pullRequest({ limit: 10 }));
      expect(given.rows).toHaveLength(3);

      const whole = { source: "orders", token: given.token, ids: null };
      expect((await store.pull.acknowledge(whole)).toSorted()).toEqual(idsOf(given.rows).toSorted());
      const states = async ({ database }: PostgresHarness) =>
        (await database.query<{ state: string }>("SELECT DISTINCT state FROM inbox")).map(({ state }) => state);
      expect([await states(a), await states(b)]).toEqual([["pending"], ["processed"]]);
    });
  });

  test("get no more bytes than they asked for", async () => {
    await withCells(async ({ a, b, store }) => {
      const large = () => ({ ...inboxRow({ consumption: "pull" }), payload: JSON.stringify("x".repeat(1000)) });
      await a.store.inbox.insert([large(), large()]);
      await b.store.inbox.insert([large(), large()]);
      const { rows } = await store.pull.claim(
        pullRequest({ limit: 10, maxBytes: 2500, token: randomUUID() as ClaimToken }),
      );
      expect(rows.length).toBeLessThanOrEqual(3);
      expect(rows.length).toBeGreaterThanOrEqual(2);
    });
  });
});

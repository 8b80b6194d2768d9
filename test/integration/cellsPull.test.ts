import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import type { ClaimToken, MessageId } from "../../src/model/rows.ts";
import { inboxRow } from "../conformance/store/harness.ts";
import { ids as idsOf, pullRequest } from "../conformance/store/pullSupport.ts";
import { composed, twoCells } from "../support/cells.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { postgresHarnesses } from "../support/postgresHarness.ts";

failOnLeaks();

const withCells = twoCells(postgresHarnesses());
const source = "orders";

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
        const { rows } = await store.pull.claim(pullRequest({ limit: 1 }));
        claimed.push(...idsOf(rows));
      }
      const cellOf = (id: MessageId) => (idsOf(inA).includes(id) ? "a" : "b");
      // The second row of an aggregate waits for the acknowledgement of the first one.
      expect(claimed.map(cellOf).join("")).toBe("abababab");
      expect(claimed.filter((id) => cellOf(id) === "a")).toEqual(idsOf(inA.slice(0, 4)));
      expect(claimed.filter((id) => cellOf(id) === "b")).toEqual(idsOf(inB.slice(0, 4)));
    });
  });

  test("get a token that tells the cell, with which any process closes their rows", async () => {
    await withCells(async ({ a, b, store }) => {
      for (const { store } of [a, b]) await store.inbox.insert(pulled(3));
      const other = composed([a.store, b.store]).pull;
      for (const place of ["0000", "0001"]) {
        const { token, rows } = await store.pull.claim(pullRequest({ limit: 5 }));
        expect(token).toMatch(
          new RegExp(`^${place}[0-9a-f]{4}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`),
        );
        const [first, second, third] = idsOf(rows) as [MessageId, MessageId, MessageId];
        expect(await other.extend({ source, token, ids: null }, 60_000)).toHaveLength(3);
        expect(await other.acknowledge({ source, token, ids: [first] })).toEqual([first]);
        const options = { delayMs: 60_000, reason: "no", maxAttempts: 5 };
        expect((await store.pull.reject({ source, token, ids: [second] }, options)).retried).toEqual([second]);
        expect(await other.acknowledge({ source, token, ids: null })).toEqual([third]);
      }
      const ofNoCell = `00ff${randomUUID().slice(4)}` as ClaimToken;
      expect(await store.pull.acknowledge({ source, token: ofNoCell, ids: null })).toEqual([]);
    });
  });
});

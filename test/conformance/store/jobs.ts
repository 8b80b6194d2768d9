import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import type { ClaimToken } from "../../../src/model/rows.ts";
import type { StoreHarness } from "./harness.ts";

const lease = (leaseMs = 60_000) => ({ token: randomUUID() as ClaimToken, leaseMs });
/** @param scope by default one whose sequence no JavaScript number holds */
const newJob = (
  id: string,
  scope = { finishedUntil: "2025-01-31T12:00:00.123456Z", lastSequence: "9007199254740993" },
) => ({
  id,
  by: "alice",
  filter: '{"state":"dead"}',
  perSecond: 5,
  total: null,
  scope,
});
const PROGRESS = { moved: 2, position: "7" };

export function exerciseJobs(open: () => Promise<StoreHarness>): void {
  describe("replay jobs", () => {
    test("are kept as they are, with their progress", async () => {
      await using harness = await open();
      const { jobs } = harness.store;
      const [id, holder] = [randomUUID(), lease()];
      const job = newJob(id, harness.scope);
      await jobs.add(job, holder);
      expect(await jobs.advance(id, holder, PROGRESS)).toBe(true);
      expect(await jobs.advance(id, holder, { moved: 3, position: null })).toBe(true);
      // A statement without an answer is repeated, and may come late.
      expect(await jobs.advance(id, holder, { moved: 3, position: null })).toBe(true);
      expect(await jobs.advance(id, holder, PROGRESS)).toBe(true);
      expect(await jobs.get(id)).toMatchObject({ ...job, state: "running", moved: 3, position: "7" });
      await jobs.end(id, holder.token, "done", null);
      expect((await jobs.list(10)).map(({ state }) => state)).toEqual(["done"]);
      expect(await jobs.get(randomUUID())).toBeUndefined();
    });

    test("are executed by one process at a time, and by another when its lease has ended", async () => {
      await using harness = await open();
      const { jobs } = harness.store;
      const [id, first, second] = [randomUUID(), lease(0), lease()];
      await jobs.add(newJob(id), first);
      expect(await jobs.abandoned(10)).toEqual([id]);
      const taken = await Promise.all([
        jobs.take(id, second),
        ...Array.from({ length: 5 }, () => jobs.take(id, lease())),
      ]);
      expect(taken.filter(Boolean)).toHaveLength(1);
      expect(await jobs.abandoned(10)).toEqual([]);
      expect(await jobs.advance(id, first, PROGRESS)).toBe(false);
      await jobs.end(id, first.token, "failed", "gone");
      expect(await jobs.get(id)).toMatchObject({ state: "running", moved: 0, lastError: null });
    });

    test("are cancelled for ever, and resumed where they were interrupted or failed", async () => {
      await using harness = await open();
      const { jobs } = harness.store;
      const [id, holder] = [randomUUID(), lease()];
      await jobs.add(newJob(id), holder);
      expect(await jobs.resume(id)).toBe(false);
      await jobs.end(id, holder.token, "interrupted", null);
      expect(await jobs.take(id, lease())).toBe(false);
      expect(await jobs.resume(id)).toBe(true);
      const next = lease();
      expect(await jobs.take(id, next)).toBe(true);
      expect(await jobs.cancel(id)).toBe(true);
      expect(await jobs.advance(id, next, PROGRESS)).toBe(false);
      await jobs.end(id, next.token, "done", null);
      expect([await jobs.cancel(id), await jobs.resume(id)]).toEqual([false, false]);
      // The batch that ran at that moment counts.
      expect(await jobs.get(id)).toMatchObject({ state: "cancelled", ...PROGRESS });
      expect(await jobs.advance(id, lease(), { moved: 3, position: "8" })).toBe(false);
      expect(await jobs.get(id)).toMatchObject(PROGRESS);
    });
  });
}

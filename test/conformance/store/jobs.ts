import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import type { StoreHarness } from "./harness.ts";

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
const PROGRESS = { state: "running", moved: 2, position: "7", lastError: "1 row was left" } as const;
const END = { ...PROGRESS, state: "done", moved: 3, position: null, lastError: null } as const;

export function exerciseJobs(open: () => Promise<StoreHarness>): void {
  describe("replay jobs", () => {
    test("are kept as they are, with their progress", async () => {
      await using harness = await open();
      const { jobs } = harness.store;
      const [id, token] = [randomUUID(), randomUUID()];
      const job = newJob(id, harness.scope);
      await jobs.add(job, token);
      expect(await jobs.note(id, token, PROGRESS)).toBe("running");
      expect(await jobs.get(id)).toMatchObject({ ...job, ...PROGRESS });
      expect(await jobs.note(id, token, END)).toBe("done");
      // A statement without an answer is repeated, and may come late.
      expect(await jobs.note(id, token, END)).toBe("done");
      expect(await jobs.note(id, token, PROGRESS)).toBe("done");
      expect(await jobs.get(id)).toMatchObject({ state: "done", moved: 3, position: "7" });
      expect((await jobs.list(10)).map(({ state }) => state)).toEqual(["done"]);
      expect(await jobs.get(randomUUID())).toBeUndefined();
    });

    test("have one run, the latest: an older one changes nothing, and learns that it must stop", async () => {
      await using harness = await open();
      const { jobs } = harness.store;
      const [id, first, second] = [randomUUID(), randomUUID(), randomUUID()];
      await jobs.add(newJob(id), first);
      await jobs.note(id, first, PROGRESS);
      expect(await jobs.resume(id, second)).toBe(true);
      expect(await jobs.note(id, first, { ...END, state: "failed", lastError: "gone" })).toBeUndefined();
      expect(await jobs.get(id)).toMatchObject(PROGRESS);
      expect(await jobs.note(id, second, { ...PROGRESS, position: "8" })).toBe("running");
      const many = await Promise.all(
        Array.from({ length: 5 }, () => randomUUID()).map(async (token) => {
          await jobs.resume(id, token);
          return token;
        }),
      );
      const noted = await Promise.all(many.map((token) => jobs.note(id, token, PROGRESS)));
      expect(noted.filter((state) => state === "running")).toHaveLength(1);
    });

    test("are cancelled for ever, and resumed when they were interrupted or failed", async () => {
      await using harness = await open();
      const { jobs } = harness.store;
      const [id, token, next] = [randomUUID(), randomUUID(), randomUUID()];
      await jobs.add(newJob(id), token);
      for (const [state, kept] of [
        ["interrupted", "1 row was left"],
        ["failed", null],
      ] as const) {
        expect(await jobs.note(id, token, { ...PROGRESS, state })).toBe(state);
        expect(await jobs.resume(id, token)).toBe(true);
        expect(await jobs.get(id)).toMatchObject({ state: "running", lastError: kept });
      }
      await jobs.resume(id, next);
      expect(await jobs.cancel(id)).toBe(true);
      // The batch that ran at that moment counts.
      expect(await jobs.note(id, next, END)).toBe("cancelled");
      expect([await jobs.cancel(id), await jobs.resume(id, token)]).toEqual([false, false]);
      expect(await jobs.get(id)).toMatchObject({ state: "cancelled", moved: 3, position: "7" });
      expect([await jobs.cancel(randomUUID()), await jobs.resume(randomUUID(), token)]).toEqual([false, false]);
    });
  });
}

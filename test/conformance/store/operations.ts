import { describe, expect, test } from "@jest/globals";
import type { Figures, ProcessName } from "../../../src/ports/operationsStore.ts";
import { claimRequest, failed, parked, type StoreHarness } from "./harness.ts";

const PROCESS: ProcessName = { name: "host-1", version: "1.2.3", roles: ["ingest", "poller"], upMs: 5000 };
const NONE = { received: 0, duplicate: 0, filtered: 0, sent: 0, failed: 0, dead: 0 };
const figures = (name: string, counts: Partial<Figures>): Figures => ({
  kind: "destination",
  name,
  minutesAgo: 0,
  ...NONE,
  ...counts,
});

export function exerciseOperations(open: () => Promise<StoreHarness>): void {
  describe("what operators see", () => {
    test("are the processes alive, until they leave", async () => {
      await using harness = await open();
      const { operations } = harness.store;
      await operations.beat(PROCESS, []);
      await operations.beat({ ...PROCESS, version: "1.2.4", upMs: 25_000 }, []);
      const { at } = await operations.beat({ ...PROCESS, name: "host-2", roles: [], clockAheadMs: -5000.4 }, []);
      const alive = await operations.processes();
      expect(alive).toMatchObject([
        { name: "host-1", version: "1.2.4", roles: ["ingest", "poller"], clockAheadMs: 0 },
        { name: "host-2", roles: [], clockAheadMs: -5000 },
      ]);
      const [first, second] = alive;
      expect(Math.abs((second?.seenAt?.getTime() ?? 0) - (at?.getTime() ?? 0))).toBeLessThan(500);
      expect((first?.seenAt?.getTime() ?? 0) - (first?.startedAt?.getTime() ?? 0)).toBeGreaterThanOrEqual(24_000);
      await operations.leave("host-1");
      await operations.leave("host-1");
      expect((await operations.processes()).map(({ name }) => name)).toEqual(["host-2"]);
    });

    test("are counted as a fleet by their roles, without itself", async () => {
      await using harness = await open();
      const { operations } = harness.store;
      const beat = (name: string, roles: readonly string[]) => operations.beat({ ...PROCESS, name, roles }, []);
      expect(await beat("host-1", ["ingest", "poller"])).toMatchObject({ pollers: 0, relays: 0 });
      expect(await beat("host-2", ["ingest"])).toMatchObject({ pollers: 1, relays: 0 });
      expect(await beat("host-3", ["poller", "relay"])).toMatchObject({ pollers: 1, relays: 0 });
      expect(await beat("host-2", ["ingest"])).toMatchObject({ pollers: 2, relays: 1 });
      await operations.leave("host-3");
      expect(await beat("host-1", ["ingest", "poller"])).toMatchObject({ pollers: 0, relays: 0 });
    });

    test("know the routes of the others, which are no role", async () => {
      await using harness = await open();
      const { operations } = harness.store;
      const beat = (name: string, routes?: string) => operations.beat({ ...PROCESS, name, routes }, []);
      expect((await beat("host-1", "00000001")).routes).toEqual([]);
      await beat("host-2", "00000002");
      await beat("host-3", "00000002");
      await beat("host-4");
      const { routes = [] } = await beat("host-1", "00000001");
      expect(routes.toSorted()).toEqual(["00000002"]);
      for (const { roles } of await operations.processes()) expect(roles).toEqual(PROCESS.roles);
    });

    test("are the sums of what all processes counted, at the same time too", async () => {
      await using harness = await open();
      const { operations } = harness.store;
      const names = ["a", "b", "A", "c\0d", "é".repeat(500)];
      const beats = Array.from({ length: 10 }, (_, n) => {
        const counted = names.map((name) => figures(name, { sent: 2, failed: 1 }));
        return operations.beat({ ...PROCESS, name: `host-${n}` }, n % 2 === 0 ? counted : counted.toReversed());
      });
      await Promise.all(beats);
      await operations.beat(PROCESS, [figures("old", { minutesAgo: 7, dead: 3 })]);
      const found = await operations.figures(5);
      expect(found.some(({ name }) => name === "old")).toBe(false);
      const sums = new Map<string, number>();
      for (const { name, sent } of found) sums.set(name, (sums.get(name) ?? 0) + sent);
      expect(sums).toEqual(new Map([...names.slice(0, 3), "cd", "é".repeat(400)].map((name) => [name, 20])));
      const [old] = await operations.figures(10);
      expect(old).toMatchObject({ kind: "destination", name: "old", dead: 3, sent: 0 });
    });

    test("is what operators did, newest first, page by page", async () => {
      await using harness = await open();
      const { operations } = harness.store;
      for (const target of ["a", "b", null]) {
        await operations.addAudit({ actor: "alice", action: "pause", target, detail: "x\0".repeat(3000) });
      }
      const page = await operations.audit(null, 2);
      expect(page.map(({ target }) => target)).toEqual([null, "b"]);
      expect(page[0]).toMatchObject({ actor: "alice", action: "pause", at: expect.any(Date) });
      expect(page[0]?.detail).toMatch(/^x{1000}$/);
      const next = await operations.audit(page[1]?.id ?? null, 10);
      expect(next.map(({ target }) => target)).toEqual(["a"]);
    });

    test("are dead rows, blocked keys with the rows behind them, and what waits in the inbox", async () => {
      await using harness = await open();
      const { store } = harness;
      await harness.insertOutbox([{ key: "dead" }, { key: "retry" }, { key: "parked" }, { key: null }]);
      const { rows } = await store.outbox.claim(claimRequest());
      const [first, second, third, fourth] = rows as [
        (typeof rows)[0],
        (typeof rows)[0],
        (typeof rows)[0],
        (typeof rows)[0],
      ];
      const { id, claimToken } = first;
      await store.outbox.settle([
        { id, claimToken, kind: "dead", attempted: true, reason: "answered 400" },
        failed(second, 3_600_000),
        parked(third),
        failed(fourth, 3_600_000),
      ]);
      await harness.insertOutbox([{ key: "retry" }, { key: "retry" }, { key: "other" }]);

      expect((await store.operations.deadRows(10)).map(({ id }) => id)).toEqual([first.id]);
      const keys = await store.operations.blockedKeys(10, 1);
      expect(keys).toMatchObject([
        { key: "retry", id: second.id, isParked: false, attempt: 1, rowsBehind: 1, dueAt: expect.any(Date) },
        { key: "parked", id: third.id, isParked: true, rowsBehind: 0, dueAt: null },
      ]);
      expect((await store.operations.blockedKeys(10, 100))[0]?.rowsBehind).toBe(2);
      expect(await store.operations.inboxBacklog(["pulled"], 10)).toEqual([]);
    });
  });
}

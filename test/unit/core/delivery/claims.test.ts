import { randomUUID } from "node:crypto";
import { expect, test } from "@jest/globals";
import { Claims } from "../../../../src/core/delivery/claims.ts";
import type { ClaimToken, MessageId, Outcome } from "../../../../src/model/rows.ts";
import type { Log } from "../../../../src/ports/runtime.ts";
import type { SettledRows } from "../../../../src/ports/store.ts";
import { queuesOf } from "../../../conformance/store/harness.ts";
import { eventually } from "../../../support/eventually.ts";
import { ManualClock, recordingLog, silentMetrics } from "../../../support/recorders.ts";
import { outboxRow, ScriptedOutbox } from "../../../support/scriptedOutbox.ts";

function claimsOf(store: ScriptedOutbox, clock: ManualClock, log: Log, wait: (ms: number) => Promise<void>): Claims {
  return new Claims({
    store,
    newToken: () => randomUUID() as ClaimToken,
    claimTimeoutMs: 300_000,
    clock,
    random: () => 0,
    metrics: silentMetrics,
    log,
    wait,
  });
}

const QUEUES = queuesOf(["receiver"]);

test("an outcome that cannot be stored now is tried again while its claim lasts, apart from the others", async () => {
  const clock = new ManualClock();
  const { log, lines } = recordingLog();
  const busyUntil = new Map<MessageId, number>();
  const tries: { readonly rows: number; readonly mayWait: boolean | undefined }[] = [];
  const store = new (class extends ScriptedOutbox {
    override async settle(outcomes: readonly Outcome[], mayWait?: boolean): Promise<SettledRows> {
      tries.push({ rows: outcomes.length, mayWait });
      const isBusy = ({ id }: Outcome) => clock.monotonic() < (busyUntil.get(id) ?? 0);
      const { closed, refused } = await super.settle(outcomes.filter((outcome) => !isBusy(outcome)));
      return { closed, refused, busy: new Map(outcomes.filter(isBusy).map(({ id }) => [id, "locked"])) };
    }
  })();
  const claims = claimsOf(store, clock, log, async (ms) => clock.advance(ms));
  store.batches.push(["later", "never", "now"].map((topic) => outboxRow({ topic })));
  const { result, claim } = await claims.make(10, QUEUES);
  const [later, never] = result.rows.map(({ id }) => id);
  if (later === undefined || never === undefined) throw new Error("nothing was claimed");
  busyUntil.set(later, clock.monotonic() + 5000);
  busyUntil.set(never, Number.POSITIVE_INFINITY);
  // As where a renewal has skipped the row, which another transaction holds.
  claim.lost.add(later);
  const settlements: string[] = [];

  for (const { id, topic, claimToken } of result.rows) {
    claims.settle(claim, { id, claimToken, kind: "sent" }, (settlement) => settlements.push(`${topic} ${settlement}`));
  }
  await eventually(() => expect(settlements).toHaveLength(5));

  expect(settlements).toEqual(["later busy", "never busy", "now closed", "later closed", "never refused"]);
  expect(tries[0]).toEqual({ rows: 3, mayWait: true });
  expect(tries.slice(1).map(({ mayWait }) => mayWait)).not.toContain(true);
  // Every two seconds at the most, up to the end of the lease.
  expect(tries.length).toBeLessThan(30);
  expect(claim.open.size).toBe(0);
  expect(lines.map(({ message }) => message).filter((message) => message.includes("now, retrying"))).toHaveLength(2);
});

test("the end of the process waits five seconds for an outcome that cannot be stored now", async () => {
  const clock = new ManualClock();
  const { log, lines } = recordingLog();
  const store = new ScriptedOutbox();
  const claims = claimsOf(store, clock, log, async (ms) => clock.advance(ms));
  store.batches.push([outboxRow()]);
  const { result, claim } = await claims.make(10, QUEUES);
  const [row] = result.rows;
  if (row === undefined) throw new Error("nothing was claimed");
  store.locked.add(row.id);
  const settlements: string[] = [];
  const startedAt = clock.monotonic();
  claims.settle(claim, { id: row.id, claimToken: row.claimToken, kind: "sent" }, (each) => settlements.push(each));

  await claims.flushed();

  expect(settlements).toEqual(["busy", "refused"]);
  expect(clock.monotonic() - startedAt).toBeGreaterThanOrEqual(5000);
  expect(clock.monotonic() - startedAt).toBeLessThan(8000);
  expect(lines.at(-1)?.message).toMatch(/^the outcome of this row could not be stored in time: it stays claimed/);
});

import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import type { MessageId } from "../../src/model/rows.ts";
import type { Expansion } from "../../src/ports/store.ts";
import { claimRequest, claimSome, queuesOf, released, sent } from "../conformance/store/harness.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { beginningWithin, settings } from "./settings.ts";
import { expansionOf, insertDeliveries } from "./store/claims.ts";
import { commands } from "./store/commands.ts";
import { isParked, LEASE, LIST, OutboxModel, precedes } from "./store/model.ts";
import { LIST_ROUTING, openSystem, type System, TIME_UNIT_MS } from "./store/system.ts";

failOnLeaks();

const REPLICAS = 3;

describe("the outbox on PostgreSQL", () => {
  test("does what the model does, whatever replicas, applications and operators do to it", async () => {
    await using system = await openSystem(REPLICAS);
    await fc.assert(
      fc.asyncProperty(
        commands,
        beginningWithin(90_000, async (sequence) => {
          await system.clear();
          const model = new OutboxModel(REPLICAS);
          await fc.asyncModelRun(() => ({ model, real: system }), sequence);
          await expectEverythingSent(model, system);
        }),
      ),
      settings(25),
    );
  }, 180_000);
});

/**
 * When time has passed and nobody fails any more, small claims of all replicas in turn get every row that is not parked or behind a parked one of its key,
 * each key in order.
 */
async function expectEverythingSent(model: OutboxModel, { replicas, ...system }: System): Promise<void> {
  await system.insertSent();
  await system.elapse(LONG_ENOUGH_MS);
  model.now += LONG_ENOUGH_MS;
  for (const row of model.expired()) model.reclaim(row);
  await replicas[0]?.store.outbox.reclaim(1000, LEASE.claimTimeoutMs);
  await insertDeliveries(model, { replicas, ...system }, await expandAll(model, replicas));
  const waiting = model.rows.filter((row) => row.state === "pending" && !model.isParkedOrBehind(row));
  const delivered: MessageId[] = [];
  // Each pass finds a row: a replica that does not look from the front does so once its clock has advanced.
  for (let pass = 0; pass < waiting.length && delivered.length < waiting.length; pass += 1) {
    const { store, clock } = replicas[pass % REPLICAS] ?? (replicas[0] as System["replicas"][number]);
    clock.advance(2000);
    const { rows } = await claimSome(store, { limit: 2, queues: QUEUES });
    delivered.push(...rows.map(({ id }) => id));
    await store.outbox.settle(rows.map(sent));
  }
  const must = waiting.filter((row) => !model.isParkedOrBehind(row, true));
  expect(new Set(delivered)).toEqual(new Set([...must.map(({ id }) => id), ...delivered]));
  expect(waiting.map(({ id }) => id)).toEqual(expect.arrayContaining(delivered));
  const rows = delivered.map((id) => model.row(id));
  const reordered = rows.flatMap((row, n) => rows.slice(0, n).filter((earlier) => precedes(row, earlier)));
  expect(reordered.map(({ position }) => position)).toEqual([]);
}

/** Claims find the messages that wait to be expanded, those behind others too, and all are. */
async function expandAll(model: OutboxModel, replicas: System["replicas"]): Promise<readonly Expansion[]> {
  const expanded: Expansion[] = [];
  const waiting = model.unexpanded().filter((row) => !isParked(row));
  for (let pass = 0; expanded.length < waiting.length && pass <= model.rows.length; pass += 1) {
    const { store, clock } = replicas[pass % REPLICAS] ?? (replicas[0] as System["replicas"][number]);
    clock.advance(2000);
    const { lists = [], rows } = await store.outbox.claim(claimRequest({ limit: 2, queues: QUEUES }));
    await store.outbox.settle(rows.map(released));
    const found = lists.map(({ id }) => expansionOf(id, LIST));
    expect(await store.outbox.expand(found)).toEqual({ expanded: lists.length, refused: [] });
    expanded.push(...found);
  }
  expect(new Set(expanded.map(({ id }) => id))).toEqual(new Set(waiting.map(({ id }) => id)));
  return expanded;
}

const QUEUES = { ...queuesOf(LIST, 2), routing: LIST_ROUTING };

/** Also after the clock was set back again and again. */
const LONG_ENOUGH_MS = 200 * TIME_UNIT_MS;

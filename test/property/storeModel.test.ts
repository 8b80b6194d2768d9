import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import type { MessageId } from "../../src/model/rows.ts";
import { claimSome, sent } from "../conformance/store/harness.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { beginningWithin, settings } from "./settings.ts";
import { commands } from "./store/commands.ts";
import { LEASE, OutboxModel } from "./store/model.ts";
import { openSystem, type System, TIME_UNIT_MS } from "./store/system.ts";

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
      settings(50),
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
  const waiting = model.rows.filter((row) => row.state === "pending" && !model.isParkedOrBehind(row));
  const delivered: MessageId[] = [];
  // Each pass finds a row: whoever does not look from the front is told by its clock to do so.
  for (let pass = 0; pass < waiting.length && delivered.length < waiting.length; pass += 1) {
    const { store, clock } = replicas[pass % REPLICAS] ?? (replicas[0] as System["replicas"][number]);
    clock.advance(2000);
    const { rows } = await claimSome(store, { limit: 2 });
    delivered.push(...rows.map(({ id }) => id));
    await store.outbox.settle(rows.map(sent));
  }
  expect(new Set(delivered)).toEqual(new Set(waiting.map(({ id }) => id)));
  for (const key of new Set(waiting.map((row) => row.key))) {
    const ofKey = waiting.filter((row) => row.key === key && key !== null).map(({ id }) => id);
    expect(delivered.filter((id) => ofKey.includes(id))).toEqual(ofKey);
  }
}

/** Also after the clock was set back again and again. */
const LONG_ENOUGH_MS = 200 * TIME_UNIT_MS;

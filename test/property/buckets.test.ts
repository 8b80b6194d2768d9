import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { StoreError } from "../../src/model/errors.ts";
import type { ClaimToken } from "../../src/model/rows.ts";
import type { BucketRow } from "../../src/ports/bucketStore.ts";
import { inboxRow } from "../conformance/store/harness.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { migratedDatabase, postgresStore } from "../support/postgresHarness.ts";
import { settings } from "./settings.ts";

failOnLeaks();

const TOKENS = [1, 2].map((n) => `00000000-0000-4000-8000-00000000000${n}` as ClaimToken);
const [LASTING_MS, ENDED_MS] = [600_000, -1];

const bucket = fc.integer({ min: 0, max: 3 });
const buckets = fc.uniqueArray(bucket, { minLength: 1 });
const token = fc.constantFrom(...TOKENS);
const leaseMs = fc.constantFrom(LASTING_MS, ENDED_MS);
const step = fc.oneof(
  fc.record({ does: fc.constant("open" as const), buckets, epoch: fc.integer({ min: 1, max: 4 }) }),
  fc.record({ does: fc.constant("close" as const), buckets, token, leaseMs }),
  fc.record({ does: fc.constant("renew" as const), token, leaseMs }),
  fc.record({ does: fc.constant("reopen" as const), buckets, token: fc.option(token) }),
  fc.record({ does: fc.constant("leave" as const), buckets, token }),
  fc.record({ does: fc.constant("receive" as const), buckets }),
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

interface ModelBucket {
  state: BucketRow["state"];
  epoch: number;
  token: ClaimToken | null;
  hasEnded: boolean;
}

/** Does a step in the model. @returns the buckets that it changes, or whether the rows are stored */
function inModel(model: Map<number, ModelBucket>, step: Step): readonly number[] | boolean {
  const changed = (of: readonly number[], change: (its: ModelBucket) => boolean): readonly number[] =>
    of.filter((each) => {
      const its = model.get(each);
      return its !== undefined && change(its);
    });
  const set = (its: ModelBucket, values: Partial<ModelBucket>): true => {
    Object.assign(its, values);
    return true;
  };
  const opened = { state: "open", token: null, hasEnded: false } as const;
  switch (step.does) {
    case "open":
      for (const each of step.buckets) {
        if ((model.get(each)?.epoch ?? 0) < step.epoch) model.set(each, { ...opened, epoch: step.epoch });
      }
      return [];
    case "close":
      return changed(
        step.buckets,
        (its) =>
          its.state === "open" && set(its, { state: "moving", token: step.token, hasEnded: step.leaseMs === ENDED_MS }),
      );
    case "renew":
      return changed(
        [...model.keys()],
        (its) =>
          its.state === "moving" && its.token === step.token && set(its, { hasEnded: step.leaseMs === ENDED_MS }),
      );
    case "reopen":
      return changed(
        step.buckets,
        (its) =>
          its.state === "moving" && (step.token === null ? its.hasEnded : its.token === step.token) && set(its, opened),
      );
    case "leave":
      return changed(
        step.buckets,
        (its) =>
          its.state === "moving" &&
          its.token === step.token &&
          set(its, { state: "left", epoch: its.epoch + 1, token: null, hasEnded: false }),
      );
    case "receive":
      return step.buckets.every((each) => model.get(each)?.state === "open");
  }
}

test("the buckets of a cell do what the model does, whatever movers do to them in whatever order", async () => {
  const database = await migratedDatabase();
  const store = postgresStore(database);
  const inStore = async (does: Step): Promise<readonly number[] | boolean> => {
    const { buckets: its } = store;
    switch (does.does) {
      case "open":
        await its.open(does.buckets.map((each) => ({ bucket: each, epoch: does.epoch })));
        return [];
      case "close":
        return await its.close(does.buckets, "b", does);
      case "renew":
        return await its.renew(does);
      case "reopen":
        return await its.reopen(does.buckets, does.token);
      case "leave":
        return (await its.leave(does.buckets, does.token)).map((left) => left.bucket);
      case "receive":
        return await store.inbox.insert(does.buckets.map((each) => inboxRow({ bucket: each }))).then(
          () => true,
          (error: unknown) => {
            if (error instanceof StoreError && error.code === "elsewhere") return false;
            throw error;
          },
        );
    }
  };
  try {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
        await database.query("TRUNCATE outbox_bucket");
        const model = new Map<number, ModelBucket>();
        for (const each of steps) {
          const expected = inModel(model, each);
          const done = await inStore(each);
          expect(typeof done === "boolean" ? done : done.toSorted()).toEqual(
            typeof expected === "boolean" ? expected : expected.toSorted(),
          );
        }
        const rows = (await store.buckets.all()).map((row) => [row.bucket, row.state, row.epoch, row.hasLeaseEnded]);
        const known = [...model].map(([each, its]) => [each, its.state, its.epoch, its.hasEnded]);
        expect(rows.toSorted()).toEqual(known.toSorted());
      }),
      settings(200),
    );
  } finally {
    await store.close();
    await database.drop();
  }
}, 120_000);

import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { StoreError } from "../../src/model/errors.ts";
import type { ClaimToken } from "../../src/model/rows.ts";
import { type BucketRow, SUPERSEDED } from "../../src/ports/bucketStore.ts";
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
  fc.record({
    does: fc.constant("expect" as const),
    buckets,
    epoch: fc.integer({ min: 1, max: 6 }),
    token,
    isServer: fc.boolean(),
  }),
  fc.record({ does: fc.constant("arrive" as const), buckets, epoch: fc.integer({ min: 1, max: 6 }), token }),
  fc.record({ does: fc.constant("takeBack" as const), buckets, epoch: fc.integer({ min: 1, max: 6 }) }),
  fc.record({ does: fc.constant("supersede" as const), buckets, epoch: fc.integer({ min: 1, max: 6 }) }),
  fc.record({
    does: fc.constant("receive" as const),
    buckets,
    bucketsOn: fc.constantFrom("this" as const, "another" as const, undefined),
  }),
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

interface ModelBucket {
  state: BucketRow["state"];
  epoch: number;
  token: ClaimToken | null;
  hasEnded: boolean;
}

/** Whether a bucket may be opened, or expected, under an epoch. */
const isNewer = (its: ModelBucket | undefined, epoch: number): boolean =>
  its === undefined || its.epoch < epoch || (its.epoch === epoch && its.state === "arriving");

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
        if (isNewer(model.get(each), step.epoch)) model.set(each, { ...opened, epoch: step.epoch });
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
          set(its, { state: "left", epoch: its.epoch + 1, hasEnded: false }),
      );
    case "expect": {
      const noted = step.isServer ? step.buckets.filter((each) => isNewer(model.get(each), step.epoch)) : [];
      for (const each of noted)
        model.set(each, { state: "arriving", epoch: step.epoch, token: step.token, hasEnded: false });
      return noted;
    }
    case "arrive":
      return changed(
        step.buckets,
        (its) =>
          its.epoch === step.epoch &&
          (its.state === "open" || (its.state === "arriving" && its.token === step.token)) &&
          set(its, opened),
      );
    case "takeBack":
      return changed(
        step.buckets,
        (its) => its.epoch === step.epoch && its.state === "left" && set(its, { ...opened, epoch: step.epoch + 2 }),
      );
    case "supersede":
      return changed(
        step.buckets,
        (its) =>
          its.epoch < step.epoch &&
          (its.state === "open" || its.state === "moving") &&
          set(its, { state: "left", epoch: step.epoch, token: SUPERSEDED, hasEnded: false }),
      );
    case "receive":
      if (step.bucketsOn === "another") return false;
      return step.buckets.every((each) => model.get(each)?.state === "open");
  }
}

test("the buckets of a cell do what the model does, whatever movers do to them in whatever order", async () => {
  const database = await migratedDatabase();
  const store = postgresStore(database);
  const { server } = await store.buckets.all();
  const at = (does: { readonly buckets: readonly number[]; readonly epoch: number }) =>
    does.buckets.map((each) => ({ bucket: each, epoch: does.epoch }));
  const inStore = async (does: Step): Promise<readonly number[] | boolean> => {
    const { buckets: its } = store;
    switch (does.does) {
      case "open":
        await its.open(at(does));
        return [];
      case "close":
        return await its.close(does.buckets, "b", does);
      case "renew":
        return await its.renew(does);
      case "reopen":
        return await its.reopen(does.buckets, does.token);
      case "leave":
        return (await its.leave(does.buckets, does.token)).map((left) => left.bucket);
      case "expect":
        return await its.expect(at(does), { from: "b", token: does.token, server: does.isServer ? server : "another" });
      case "arrive":
        return await its.arrive(at(does), does.token);
      case "takeBack":
        return await its.takeBack(at(does).map((each) => ({ ...each, nextEpoch: does.epoch + 2 })));
      case "supersede":
        return await its.supersede(at(does).map((each) => ({ ...each, cell: "b" })));
      case "receive": {
        const bucketsOn = does.bucketsOn === "this" ? server : does.bucketsOn;
        return await store.inbox.insert(does.buckets.map((each) => inboxRow({ bucket: each, bucketsOn }))).then(
          () => true,
          (error: unknown) => {
            if (error instanceof StoreError && error.code === "elsewhere") return false;
            throw error;
          },
        );
      }
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
        const rows = (await store.buckets.all()).rows.map((row) => [
          row.bucket,
          row.state,
          row.epoch,
          row.token,
          row.hasLeaseEnded,
        ]);
        const known = [...model].map(([each, its]) => [each, its.state, its.epoch, its.token, its.hasEnded]);
        expect(rows.toSorted()).toEqual(known.toSorted());
      }),
      settings(200),
    );
  } finally {
    await store.close();
    await database.drop();
  }
}, 120_000);

import { expect, test } from "@jest/globals";
import { Parked, saysWhichRows } from "../../../../src/core/operations/parked.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import type { MessageId } from "../../../../src/model/rows.ts";
import type { ParkedRow, ParkedStore } from "../../../../src/ports/store.ts";
import { recordingAudit, silentLog } from "../../../support/recorders.ts";

const NEVER = new AbortController().signal;

/** @param isAnswered whether the answers to changes come */
function setup(count: number, isAnswered = true) {
  const rows = Array.from({ length: count }, (_, n) => ({
    id: String(n) as MessageId,
    sequence: String(n + 1),
    topic: n % 2 === 0 ? "orders" : null,
    lastError: n % 3 === 0 ? null : `answered 50${n % 3}: case ${n}`,
  }));
  const sizes: number[] = [];
  const change = async (ids: readonly MessageId[]) => {
    sizes.push(ids.length);
    if (!isAnswered) throw new StoreError("unavailable", "parked.discard: Query read timeout");
    return { changed: ids.length };
  };
  const store: Partial<ParkedStore> = {
    list: async (_filter, after, limit) =>
      rows.filter(({ sequence }) => Number(sequence) > Number(after ?? 0)).slice(0, limit) as unknown as ParkedRow[],
    retry: change,
    discard: change,
  };
  const parked = new Parked({
    store: store as ParkedStore,
    replay: { untried: async () => 0 },
    destinationOf: ({ topic }) => topic ?? undefined,
    onFreed: () => {},
    redact: (text) => text,
    audit: recordingAudit().audit,
    log: silentLog,
    wait: async () => {},
  });
  return { parked, sizes };
}

test("rows are changed in batches", async () => {
  const { parked, sizes } = setup(2500);
  expect(await parked.discard({}, "alice", "no", NEVER)).toEqual({ changed: 2500 });
  expect(sizes).toEqual([1000, 1000, 500]);
});

test("a batch whose answer does not come ends the change, and the error says that its rows may be changed", async () => {
  const { parked } = setup(10, false);
  await expect(parked.discard({}, "alice", "no", NEVER)).rejects.toThrow(
    "ended early, after 0 rows were changed; those of the last batch may be changed too",
  );
});

test("a change takes the rows of a reason's group, and those without a destination", async () => {
  const { parked } = setup(12);
  const reason = "answered 501: case 4711";
  expect(await parked.retry({ reason }, "alice", NEVER)).toEqual({ changed: 4 });
  expect((await parked.list({ reason, destination: null }, 12)).map(({ id }) => id)).toEqual(["1", "7"]);
  expect(await parked.discard({ reason, destination: "orders" }, "alice", "no", NEVER)).toEqual({ changed: 2 });
});

test("no destination alone says not which rows, and narrows all of them", async () => {
  const { parked } = setup(12);
  expect(saysWhichRows({ destination: null }, undefined)).toBe(false);
  expect(saysWhichRows({ destination: null }, true)).toBe(true);
  expect(await parked.retry({ destination: null }, "alice", NEVER)).toEqual({ changed: 6 });
});

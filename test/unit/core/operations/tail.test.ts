import { expect, test } from "@jest/globals";
import { tail } from "../../../../src/core/operations/tail.ts";
import { StoreError, type StoreErrorCode } from "../../../../src/model/errors.ts";
import type { MessageId } from "../../../../src/model/rows.ts";
import type { HistoryEntry } from "../../../../src/ports/historyStore.ts";

function entry(sequence: string): HistoryEntry {
  return {
    sequence,
    id: "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f" as MessageId,
    at: new Date(0),
    event: "retry",
    attempt: 1,
    actor: null,
    destination: null,
    code: null,
    status: null,
    durationMs: null,
    reason: null,
  };
}

/** Follows reads that each add an entry, or fail with a code. */
function follow(reads: readonly (string | { readonly fails: StoreErrorCode })[]) {
  const stop = new AbortController();
  const left = [...reads];
  const present: HistoryEntry[] = [];
  const faults: unknown[] = [];
  const entries = tail(10, {
    histories: [
      {
        async since(after) {
          const next = left.shift();
          if (typeof next === "object") throw new StoreError(next.fails, "history.since: gone");
          if (next !== undefined) present.push(entry(next));
          return present.filter(({ sequence }) => after === null || BigInt(sequence) > BigInt(after));
        },
      },
    ],
    pause: async () => {
      if (left.length === 0) stop.abort();
      return !stop.signal.aborted;
    },
    onAway: (error) => faults.push(error),
    signal: stop.signal,
  });
  const shown: string[] = [];
  const ended = (async () => {
    for await (const { sequence } of entries) shown.push(sequence);
  })();
  return { shown, faults, ended };
}

test("entries come once each, those of an outage after it, which is reported once", async () => {
  const { shown, faults, ended } = follow(["1", "2", { fails: "unavailable" }, { fails: "contention" }, "4", "3"]);
  await ended;
  expect(shown).toEqual(["1", "2", "4", "3"]);
  expect(faults).toHaveLength(1);
});

test("what does not pass by itself ends it, and so does a database that is away from the beginning", async () => {
  const missing = follow(["1", { fails: "schema" }, "2"]);
  await expect(missing.ended).rejects.toThrow("gone");
  expect(missing.shown).toEqual(["1"]);
  await expect(follow([{ fails: "unavailable" }]).ended).rejects.toThrow("gone");
});

test("entries of several cells come in the order of their times, and a cell that is away holds up no other", async () => {
  const stop = new AbortController();
  const faults: unknown[] = [];
  const at = (sequence: string, ms: number) => ({ ...entry(sequence), at: new Date(ms) });
  /** Each read answers the next list, and after the last one nothing. */
  const cell = (...reads: readonly (readonly HistoryEntry[] | undefined)[]) => {
    const left = [...reads];
    return {
      async since() {
        const next = left.shift();
        if (next === undefined && left.length > 0) throw new StoreError("unavailable", "the cell b does not answer");
        return next ?? [];
      },
    };
  };
  let rounds = 0;
  const entries = tail(3, {
    // Sequences of two cells mean nothing to each other.
    histories: [
      cell([at("900", 1), at("901", 5)], [at("902", 30)]),
      cell(undefined, undefined, [at("1", 0)], [at("2", 40)]),
    ],
    pause: async () => {
      rounds += 1;
      if (rounds === 4) stop.abort();
      return !stop.signal.aborted;
    },
    onAway: (error) => faults.push(error),
    signal: stop.signal,
  });
  const shown: string[] = [];
  for await (const { sequence } of entries) shown.push(sequence);
  expect(shown).toEqual(["900", "901", "902", "2"]);
  expect(faults).toHaveLength(1);

  const both = tail(3, {
    histories: [cell([at("900", 1), at("901", 5)]), cell([at("1", 0), at("2", 3)])],
    pause: async () => false,
    onAway: () => {},
    signal: new AbortController().signal,
  });
  const newest: string[] = [];
  for await (const { sequence } of both) newest.push(sequence);
  expect(newest).toEqual(["900", "2", "901"]);
});

import { afterEach, beforeEach, describe, expect, jest, test } from "@jest/globals";
import { ReceiptJournal } from "../../../../src/core/receipt/journal.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import type { NewJournalEntry } from "../../../../src/ports/journalStore.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../../support/recorders.ts";

const SECOND = 1000;
const DUPLICATE = { source: "orders", idempotencyKey: "k", correlationId: "c" };

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

function setup() {
  const clock = new ManualClock();
  const { metrics, calls } = recordingMetrics();
  const { log, lines } = recordingLog();
  const written: (readonly NewJournalEntry[])[] = [];
  const deletions: number[] = [];
  const store = {
    failure: undefined as Error | undefined,
    add: async (entries: readonly NewJournalEntry[]) => {
      if (store.failure !== undefined) throw store.failure;
      written.push(entries);
    },
    deleteOld: async (limit: number) => {
      deletions.push(limit);
      return 0;
    },
  };
  const journal = new ReceiptJournal({ store, replica: "host-1", remedy: "svc migrate", clock, metrics, log });
  const pass = async (ms: number) => {
    clock.advance(ms);
    await jest.advanceTimersByTimeAsync(ms);
  };
  return { journal, store, written, deletions, calls, lines, pass };
}

describe("the journal of a process", () => {
  test("writes what was noted in a second in one statement, and nothing while nothing is noted", async () => {
    const { journal, written, deletions, pass } = setup();
    journal.duplicate(DUPLICATE);
    journal.filtered("bills", () => ({ idempotencyKey: "b", correlationId: undefined }));
    expect(written).toEqual([]);
    await pass(SECOND);
    expect(written).toEqual([
      [
        { ...DUPLICATE, outcome: "duplicate", replica: "host-1", ageMs: SECOND },
        {
          source: "bills",
          outcome: "filtered",
          idempotencyKey: "b",
          correlationId: null,
          replica: "host-1",
          ageMs: SECOND,
        },
      ],
    ]);
    await pass(60 * SECOND);
    expect([written.length, deletions.length, jest.getTimerCount()]).toEqual([1, 1, 0]);
    journal.duplicate(DUPLICATE);
    await pass(SECOND);
    expect([written.length, deletions.length]).toEqual([2, 2]);
  });

  test("keeps a hundred entries a second, and counts the others without reading them", async () => {
    const { journal, written, calls, pass } = setup();
    let reads = 0;
    for (let n = 0; n < 130; n += 1) {
      journal.filtered("orders", () => {
        reads += 1;
        return { idempotencyKey: null, correlationId: `c-${n}` };
      });
    }
    expect(reads).toBe(0);
    await pass(SECOND);
    expect([written.map(({ length }) => length), reads, calls.length]).toEqual([[100], 100, 30]);
    expect(new Set(calls)).toEqual(new Set(["journalDropped(1)"]));
  });

  test("writes the rest when it stops, also what is being read", async () => {
    const { journal, written } = setup();
    journal.filtered("orders", () => ({ idempotencyKey: "a", correlationId: "c" }));
    const stopped = journal.stop(new AbortController().signal);
    await jest.runAllTimersAsync();
    await stopped;
    expect(written).toMatchObject([[{ idempotencyKey: "a" }]]);
    journal.duplicate(DUPLICATE);
    await jest.runAllTimersAsync();
    expect(written).toHaveLength(1);
  });

  test("pauses after each failure until a write succeeds", async () => {
    const { journal, store, written, calls, lines, pass } = setup();
    store.failure = new StoreError("contention", "locked");
    for (const seconds of [60, 60]) {
      journal.duplicate(DUPLICATE);
      await pass(SECOND);
      expect(lines.at(-1)).toMatchObject({
        level: "warn",
        fields: { reason: expect.stringContaining("locked"), seconds },
      });
      journal.duplicate(DUPLICATE);
      await pass((seconds - 1) * SECOND);
      journal.duplicate(DUPLICATE);
      await pass(SECOND);
    }
    expect([written.length, lines.length, calls.length]).toEqual([0, 2, 6]);
    store.failure = undefined;
    journal.duplicate(DUPLICATE);
    await pass(SECOND);
    expect(written).toHaveLength(1);
  });

  test("is off if its table cannot be used, with one warning that has the remedy", async () => {
    const { journal, store, calls, lines, pass } = setup();
    store.failure = new StoreError("schema", "no table");
    for (let n = 0; n < 3; n += 1) {
      journal.duplicate(DUPLICATE);
      await pass(3600 * SECOND);
    }
    expect(lines).toMatchObject([{ level: "warn", fields: { remedy: "svc migrate" } }]);
    expect(calls).toHaveLength(3);
  });
});

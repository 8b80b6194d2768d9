import { expect, test } from "@jest/globals";
import { Heartbeat, Tally, tallySource } from "../../../../src/core/operations/heartbeat.ts";
import type { Figures, ProcessName } from "../../../../src/ports/operationsStore.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../../support/recorders.ts";

const PROCESS = { name: "host-1", version: "1", roles: ["poller"] };

function setup(aheadMs = 0) {
  const clock = new ManualClock();
  const tally = new Tally(clock);
  const { log, lines } = recordingLog();
  const beats: (readonly Figures[])[] = [];
  const left: string[] = [];
  const fleet: number[] = [];
  const failure: { error?: Error } = {};
  const ahead: unknown[] = [];
  let due: (() => void) | undefined;
  const heartbeat = new Heartbeat({
    store: {
      async beat({ clockAheadMs }: ProcessName, counted) {
        if (failure.error !== undefined) throw failure.error;
        beats.push(counted);
        ahead.push(clockAheadMs);
        return { pollers: beats.length, relays: 0, at: new Date(clock.now() - aheadMs) };
      },
      leave: async (name) => void left.push(name),
    },
    process: PROCESS,
    tally,
    onBeat: ({ pollers }) => fleet.push(pollers),
    clock,
    timer: (_ms, callback) => {
      due = callback;
      return () => {
        due = undefined;
      };
    },
    log,
  });
  /** The next beat, `ms` later; resolves when the one after it is awaited. */
  const beat = async (ms = 20_000) => {
    clock.advance(ms);
    const run = due;
    due = undefined;
    run?.();
    await settled();
  };
  return { heartbeat, tally, ahead, beats, fleet, left, failure, lines, beat };
}

/** Lets every promise callback run that is due. */
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

const counts = (beat: readonly Figures[] | undefined) =>
  beat?.map(({ name, minutesAgo, sent }) => [name, minutesAgo, sent]);

test("each beat tells how many other pollers there are", async () => {
  const { heartbeat, fleet, failure, beat } = setup();
  await heartbeat.start();
  await settled();
  await beat();
  failure.error = new Error("no connection");
  await beat();
  expect(fleet).toEqual([1, 2]);
});

test.each([
  [0, 0],
  [1999, 0],
  [312_000, 312_000],
  [-45_000, -45_000],
])("each beat tells how far the clock was ahead of the database's in the one before: %d ms as %d", async (by, told) => {
  const { heartbeat, ahead, beat } = setup(by);
  await heartbeat.start();
  await settled();
  await beat();
  expect(ahead).toEqual([0, told]);
});

test("a beat has what was counted since the last one, and the last one comes at the stop", async () => {
  const { heartbeat, tally, beats, left, beat } = setup();
  await heartbeat.start();
  await settled();
  tally.count("destination", "billing", "sent", 2);
  tally.count("destination", "billing", "sent", 1);
  await beat();
  await beat();
  tally.count("destination", "audit", "sent", 1);
  await heartbeat.stop(new AbortController().signal);
  expect(beats.map(counts)).toEqual([[], [["billing", 0, 3]], [], [["audit", 0, 1]]]);
  expect(left).toEqual(["host-1"]);
});

test("while the database is away, ten minutes of counts are kept for their minutes, with one warning", async () => {
  const { heartbeat, tally, beats, failure, lines, left, beat } = setup();
  await heartbeat.start();
  await settled();
  failure.error = new Error("gone");
  tally.count("destination", "lost", "sent", 1);
  await beat();
  await beat(400_000);
  tally.count("destination", "kept", "sent", 1);
  await beat();
  await beat(220_000);
  delete failure.error;
  await beat();
  expect(lines).toHaveLength(1);
  expect(counts(beats.at(-1))).toEqual([["kept", 4, 1]]);
  failure.error = new Error("gone");
  await heartbeat.stop(new AbortController().signal);
  expect(left).toEqual([]);
});

test("what is wrong with messages of a source is a remark for each word", () => {
  const tally = new Tally(new ManualClock());
  const { metrics, calls } = recordingMetrics();
  const counted = tallySource(metrics, tally, "my orders");
  counted.inboxRefused("my orders", "credentials");
  counted.inboxRefused("my orders", "credentials");
  counted.inboxRefused("my orders", "too_large");
  counted.inboxWithoutAggregateId("my orders");
  const figures = tally.take()?.counted.map(({ kind, name, counts }) => [kind, name, counts.received]);
  expect(figures).toEqual([
    ["remark", "credentials my orders", 2],
    ["remark", "too_large my orders", 1],
    ["remark", "no_aggregate_id my orders", 1],
  ]);
  expect(calls).toHaveLength(4);
});

import { describe, expect, test } from "@jest/globals";
import { Replay } from "../../../../src/core/operations/replay.ts";
import { ReplayJobs } from "../../../../src/core/operations/replayJobs.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import type { MessageId } from "../../../../src/model/rows.ts";
import type { FinishedRow } from "../../../../src/ports/finishedRows.ts";
import type { Job, JobStore } from "../../../../src/ports/jobStore.ts";
import { ManualClock, recordingAudit, recordingLog, silentLog } from "../../../support/recorders.ts";

const ID = "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f";
const RUN = { id: ID, token: "t" };
const never = new AbortController().signal;

function rowOf(n: number, topic = "orders"): FinishedRow {
  const id = `00000000-0000-7000-8000-${String(n).padStart(12, "0")}` as MessageId;
  const facts = { key: null, state: "dead", attempt: 5, createdAt: null, lastError: null } as const;
  return { id, sequence: String(n), topic, destination: null, isPinned: false, ...facts };
}

/** One running job over finished rows in pages of ten. */
function setup(rows: readonly FinishedRow[], filter = '{"topic":"orders"}') {
  const clock = new ManualClock();
  const job: { -readonly [K in keyof Job]: Job[K] } = {
    id: ID,
    by: "alice",
    filter,
    perSecond: null,
    total: null,
    scope: { finishedUntil: "2026-01-05T08:30:00.000000Z", lastSequence: "1000" },
    state: "running",
    createdAt: null,
    updatedAt: null,
    moved: 0,
    position: null,
    lastError: null,
  };
  const notes: (readonly [moved: number, position: string | null])[] = [];
  /** What happens instead of, or after, the next notes. */
  const faults: ((note: () => void) => void)[] = [];
  const { log, lines } = recordingLog();
  const jobs: Pick<JobStore, "get" | "note"> = {
    get: async () => ({ ...job }),
    async note(_id, token, { state, moved, position, lastError }) {
      const note = () => {
        notes.push([moved, position]);
        job.moved = Math.max(job.moved, moved);
        job.position = position ?? job.position;
        job.lastError = lastError;
        if (job.state === "running") job.state = state;
      };
      const fault = faults.shift();
      if (fault !== undefined) fault(note);
      else if (token === holder.token) note();
      return token === holder.token ? job.state : undefined;
    },
  };
  const holder = { ...RUN };
  const moved: string[] = [];
  const replay = new Replay({
    inbox: {} as never,
    store: {
      destinationRemedy: undefined,
      begin: async () => job.scope,
      async page(_scope, { topics }, after, limit) {
        clock.advance(2000);
        const page = rows.filter(({ sequence }) => Number(sequence) > Number(after ?? 0)).slice(0, limit);
        const next = page.length === limit ? (page.at(-1)?.sequence ?? null) : null;
        return { rows: page.filter(({ topic }) => topics?.includes(topic ?? "")), next };
      },
      find: async () => [],
      async move(_scope, ids) {
        moved.push(...ids);
        return { changed: ids.length };
      },
      add: async () => ({ changed: 0 }),
      untried: async () => 0,
    },
    destinationOf: () => undefined,
    listOf: () => undefined,
    onMoved: () => {},
    redact: (text) => text,
    audit: recordingAudit().audit,
    log: silentLog,
    batchSize: 10,
    wait: async () => {},
  });
  const runner = new ReplayJobs({
    store: jobs as JobStore,
    replay,
    newId: () => ID,
    now: () => clock.monotonic(),
    audit: recordingAudit().audit,
    redact: (text) => text,
    log,
  });
  return { runner, job, holder, notes, faults, moved, lines };
}

const thirty = () => Array.from({ length: 30 }, (_, n) => rowOf(n + 1));
const unavailable = () => {
  throw new StoreError("unavailable", "jobs.note: the connection broke");
};

describe("a replay job", () => {
  test("goes on when the database is away while its progress is noted, and counts each row once", async () => {
    const { runner, job, faults, moved } = setup(thirty());
    // The second note was stored, but its answer was lost.
    faults.push(
      (note) => note(),
      (note) => {
        note();
        unavailable();
      },
      unavailable,
    );
    expect(await runner.execute(RUN, never)).toMatchObject({ state: "done", moved: 30 });
    expect([moved.length, job.position]).toEqual([30, "30"]);
  });

  test("that is stopped notes what it moved last", async () => {
    const { runner, job, faults, moved } = setup(thirty());
    const stop = new AbortController();
    faults.push(() => {
      stop.abort();
      unavailable();
    });
    await runner.execute(RUN, stop.signal);
    expect(moved).toHaveLength(10);
    expect(job).toMatchObject({ state: "interrupted", moved: 10, position: "10" });
  });

  test.each(["cancelled", "resumed elsewhere"])("that is %s ends after its batch, and says so", async (what) => {
    const { runner, job, holder, faults, moved, lines } = setup(thirty());
    faults.push(() => {
      if (what === "cancelled") job.state = "cancelled";
      else holder.token = "another";
    });
    expect(await runner.execute(RUN, never)).toMatchObject({ state: job.state, lastError: null });
    expect(moved).toHaveLength(10);
    expect(lines).toMatchObject([
      { level: "warn", message: expect.stringContaining("replay ended"), fields: { job: ID, moved: 10 } },
    ]);
  });

  test("notes how far it has looked without a match", async () => {
    const { runner, notes } = setup(Array.from({ length: 25 }, (_, n) => rowOf(n + 1, n === 24 ? "orders" : "other")));
    await runner.execute(RUN, never);
    expect(notes.slice(0, 3)).toEqual([
      [0, "10"],
      [0, "20"],
      [1, "25"],
    ]);
  });
});

import { afterEach, beforeEach, jest } from "@jest/globals";
import { check } from "../support/chaos/checker.ts";
import type { JournalEntry, RowState } from "../support/chaos/journal.ts";
import { Timeline } from "../support/chaos/timeline.ts";
import { History } from "../support/history.ts";

/** A run of one key that the checker is shown, with replicas A.1 and B.1, whose lease ends 3 s after a claim. */
class Run {
  now = 0;
  comesThroughInbox = true;
  goesToBroker = false;
  readonly history = new History(() => this.now);
  readonly timeline = new Timeline(() => {});
  readonly entries: JournalEntry[] = [];
}

/** That of the test. */
export let run: Run;

/** Gives each test of the file a run of its own with two messages, `m-1` and `m-2`, that wait in the table. */
export function useRuns(): void {
  beforeEach(() => {
    run = new Run();
    jest.spyOn(Date, "now").mockImplementation(() => run.now);
    for (const n of [1, 2]) {
      run.history.sent(`m-${n}`, "k");
      run.history.acknowledged(`m-${n}`);
      insert(0, `m-${n}`, n, `row-${n}`);
    }
  });

  afterEach(() => {
    jest.restoreAllMocks();
  });
}

/** The row of a message comes into the table. */
export function insert(at: number, message: string, sequence: number, rowId = `row-${message}`): void {
  const nothingYet = { was: null, wasAttempt: null, leaseLeftMs: null, claim: null, wasParked: null };
  run.entries.push({ ...nothingYet, at, replica: "relay-0.1", sequence, message, rowId, state: "pending", attempt: 0 });
}

/** A receipt claims the row that it inserts. */
export function insertClaimed(at: number, replica: string, sequence: number): void {
  const message = `m-${sequence}`;
  const nothingYet = { was: null, wasAttempt: null, leaseLeftMs: null, wasParked: null, attempt: 0 };
  const row = { sequence, message, rowId: `row-${message}` };
  run.entries.push({ ...nothingYet, ...row, at, replica, state: "processing", claim: `${replica} ${at}` });
}

interface Change {
  readonly leaseLeftMs?: number;
  readonly attempt?: number;
  readonly claim?: string;
  readonly wasParked?: boolean;
}

export function change(
  at: number,
  replica: string,
  sequence: number,
  was: RowState,
  state: RowState,
  more: Change = {},
): void {
  const { leaseLeftMs = null, attempt = 0, claim = null, wasParked = false } = more;
  const entry = { at, replica, sequence, was, state, leaseLeftMs, attempt, claim, wasParked };
  run.entries.push({ ...entry, message: null, rowId: null, wasAttempt: 0 });
}

export const claim = (at: number, replica: string, sequence: number) =>
  change(at, replica, sequence, "pending", "processing", { claim: `${replica} ${at}` });
export const settle = (at: number, replica: string, sequence: number, leaseLeftMs = 2000) =>
  change(at, replica, sequence, "processing", "sent", { leaseLeftMs });
export const reclaim = (at: number, replica: string, sequence: number, leaseLeftMs = -1) =>
  change(at, replica, sequence, "processing", "pending", { leaseLeftMs });
export const deliver = (at: number, replica: string, sequence: number, answered = true) =>
  run.history.received(`m-${sequence}`, replica, { at, answered });

/** Both rows claimed together, delivered and settled. */
export function goesWell(at: number, replica: string, sequences: readonly number[] = [1, 2]): void {
  for (const n of sequences) claim(at, replica, n);
  for (const n of sequences) deliver(at + 10 * n, replica, n);
  for (const n of sequences) settle(at + 50, replica, n);
}

/** The row of `m-4` is the third one, and goes well before that of `m-3`. */
export function comeInReverse(at: number): void {
  for (const [sequence, message] of [
    [3, 4],
    [4, 3],
  ] as const) {
    claim(at + sequence, "A.1", sequence);
    deliver(at + 10 + sequence, "A.1", message);
    settle(at + 20 + sequence, "A.1", sequence);
  }
}

export function fault(from: number, until: number, process: string, suspends = false): void {
  run.now = from;
  const lift = run.timeline.begin("a fault", { process }, suspends);
  run.now = until;
  lift();
}

export async function violations(): Promise<readonly string[]> {
  const journal = async function* () {
    yield { key: "k", entries: run.entries };
  };
  const verdict = await check({
    history: run.history,
    timeline: run.timeline,
    goesToBroker: () => run.goesToBroker,
    comesThroughInbox: () => run.comesThroughInbox,
    leaseMs: 3000,
    concurrency: 8,
    journal: journal(),
  });
  return verdict.violations.map(({ message, what }) => `${message} ${what}`);
}

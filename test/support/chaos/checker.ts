import type { Arrival, History } from "../history.ts";
import { DUPLICATE_WINDOW_MS } from "./arrivals.ts";
import { type Claim, lostClaims, type RowHistory, replayKey, type Violation } from "./claims.ts";
import type { JournalEntry } from "./journal.ts";
import type { Fault, Timeline } from "./timeline.ts";

/** What one run has left behind. */
export interface Evidence {
  readonly history: History;
  readonly timeline: Timeline;
  /** Whether the messages of a key go to the broker. */
  readonly goesToBroker: (key: string) => boolean;
  /** Whether a message comes through the inbox. */
  readonly comesThroughInbox: (message: string) => boolean;
  /** The lease of a claim, which is not renewed past it here. */
  readonly leaseMs: number;
  /** How many deliveries a process makes at a time. */
  readonly concurrency: number;
  readonly journal: AsyncIterable<{ readonly key: string; readonly entries: readonly JournalEntry[] }>;
}

export interface Verdict {
  /** In the order of the keys; the first ones with the rows of their messages, to tell the story. */
  readonly violations: readonly ToldViolation[];
  readonly rows: number;
  readonly claims: number;
  readonly repeated: number;
}

export interface ToldViolation extends Violation {
  readonly row: RowHistory | undefined;
  readonly otherRow: RowHistory | undefined;
}

/**
 * Checks what must hold of a run, when all its deliveries have ended:
 *
 * - **Nothing is lost.** Each acknowledged message has come, and its one row is `sent`.
 * - **In order.** The messages of a key come for the first time in the order in which they were sent, and are claimed in that order. Messages that are received
 *   after the database's clock is set back may pass a message that waits in the inbox. If the database is put back to a copy and forgets an acknowledged
 *   message, the message may come by an earlier try of its sender: a suspended process finds that try in its socket.
 * - **A lost claim changes nothing.** See {@link replayKey}. And no row is `sent` that no receiver got: the process that marked it had delivered it under the
 *   very claim that it closed. If that was a repetition, the stream may have passed over it.
 * - **Twice only in the documented windows.** One delivery of a message was settled. A process made each other delivery under a claim of its own, and one of
 *   these is true of that claim:
 *   1. the receiver broke off without an answer. Its process may repeat such a request once under the same claim, at once;
 *   2. the claim ended otherwise than by `sent`, and between arrival and end of the claim something touched the process that delivered: the process
 *      itself, its way to the database, the database, or the broker for what goes there. A process that nothing touches settles what was
 *      acknowledged in the first half of its lease; in the second half a busy machine may be too slow;
 *   3. it came after the end of its claim, and the process was suspended in between: the request was on its way out. One suspension does that to one message of
 *     a key at most, and to no more messages than the process delivers at a time. Without a suspension it may be late by a sixth of the lease: with so much
 *     left a delivery may begin, and it takes a machine that stands still for twice as long. If a step of the database's clock has ended the claim, its process
 *     may deliver for as long as the lease would have lasted;
 *   4. the claim was lost with everything that the database has forgotten when it was put back to a copy. An acknowledged message without a row
 *     may be lost then; the messages with a row still come, in order.
 *
 * A repetition may come after later messages of its key; {@link History} says why. It is no reorder when it is allowed as a repetition.
 */
export async function check(evidence: Evidence): Promise<Verdict> {
  const { history, timeline, journal } = evidence;
  const deliveries = new Deliveries(evidence);
  const violations: ToldViolation[] = [];
  const late = new Map(history.outOfOrder.map((each) => [each.late, each.before]));
  const known = new Set<string>();
  const copiedAt = timeline.restores.map((restore) => restore.copiedAt);
  let rowCount = 0;
  let claimCount = 0;
  for await (const { key, entries } of journal) {
    const { rows, violations: found } = replayKey(key, entries, copiedAt);
    const byMessage = new Map(rows.map((row) => [row.message, row]));
    const add = (each: Violation) =>
      violations.push({ ...each, row: byMessage.get(each.message), otherRow: byMessage.get(each.other ?? "") });
    for (const each of found) add(each);
    rowCount += rows.length;
    for (const row of rows) {
      claimCount += row.claims.length;
      known.add(row.message);
      for (const what of deliveries.wrong(row)) add({ message: row.message, what });
      const before = late.get(row.message);
      if (before !== undefined && !mayBePassed(evidence, row, before)) {
        add({ message: row.message, what: `came for the first time after ${before}`, other: before });
      }
    }
  }
  for (const id of history.missing) {
    if (!known.has(id) && timeline.mayBeLost(history.of(id)?.acknowledgedAt)) continue;
    violations.push({ message: id, what: "was acknowledged and never delivered", row: undefined, otherRow: undefined });
  }
  for (const id of history.unknown)
    violations.push({ message: id, what: "was delivered and never sent", row: undefined, otherRow: undefined });
  return { violations, rows: rowCount, claims: claimCount, repeated: history.repeated.length };
}

/**
 * Whether a message waited in the inbox when the database's clock was set back, and another one was received after that; or was received a second time
 * because the database had forgotten it.
 */
function mayBePassed({ history, timeline, comesThroughInbox }: Evidence, row: RowHistory, by: string): boolean {
  const { sentAt = 0, acknowledgedAt } = history.of(row.message) ?? {};
  if (timeline.wasForgotten(acknowledgedAt, row.insertedAt)) return true;
  const receivedBy = history.of(by)?.acknowledgedAt ?? Number.POSITIVE_INFINITY;
  return comesThroughInbox(row.message) && timeline.clockSetBack(sentAt, row.insertedAt).some((at) => at <= receivedBy);
}

/** Looks at the deliveries of one message after another. */
class Deliveries {
  readonly #evidence: Evidence;
  /** What each suspended process sent late: the keys. */
  readonly #late = new Map<Fault, string[]>();
  /** Claims that the database has forgotten, by the message. */
  readonly #lost: readonly ReadonlyMap<string, readonly Claim[]>[];

  constructor(evidence: Evidence) {
    this.#evidence = evidence;
    this.#lost = evidence.timeline.restores.map(({ lost }) => lostClaims(lost));
  }

  /** What is wrong with those of a message. */
  wrong(row: RowHistory): readonly string[] {
    const arrivals = withoutRepeated(this.#evidence.history.of(row.message)?.arrivals ?? []);
    const settled = row.claims.find(({ end }) => end === "sent");
    if (settled === undefined) return [`its row is ${row.state}`];
    const wrong: string[] = [];
    const lost = this.#lost.flatMap((claims) => claims.get(row.message) ?? []);
    const delivered = attribute(
      arrivals,
      [...row.claims, ...lost].sort((a, b) => a.from - b.from),
    );
    const hasDelivered = [...delivered].some(([arrival, claim]) => claim === settled && arrival.at <= settled.until);
    if (!hasDelivered && !this.#streamHadIt(row.key, arrivals, settled)) {
      wrong.push(`its row was marked sent by ${settled.replica}, which had not delivered it under that claim`);
    }
    for (const arrival of arrivals) {
      const claim = delivered.get(arrival);
      if (claim === undefined) wrong.push(`came from ${arrival.from} without a claim, or a second time under one`);
      else if (claim.mustYieldTo !== undefined) {
        wrong.push(`came from ${arrival.from} under a claim that it had to give back, because of ${claim.mustYieldTo}`);
      } else if (claim !== settled) wrong.push(...this.#wrongRepetition(row.key, arrival, claim));
    }
    return wrong;
  }

  /** Whether a stream may have dropped a delivery as a duplicate of a delivery under another claim. */
  #streamHadIt(key: string, arrivals: readonly Arrival[], { from, until }: Claim): boolean {
    if (!this.#evidence.goesToBroker(key)) return false;
    return arrivals.some(({ at }) => at >= from - DUPLICATE_WINDOW_MS && at <= until);
  }

  #wrongRepetition(key: string, { at, from, answered }: Arrival, claim: Claim): readonly string[] {
    const { timeline, goesToBroker, leaseMs } = this.#evidence;
    if (claim.end === "lost") return [];
    if (at > claim.until) return this.#wrongWhenLate(key, at, claim);
    if (!answered || at > claim.from + leaseMs / 2) return [];
    if (timeline.disturbed(claim.replica, at, claim.until, goesToBroker(key))) return [];
    return [`came from ${from} under a claim that ended ${claim.end}, and nothing had touched that process`];
  }

  #wrongWhenLate(key: string, at: number, { replica, from, until, end }: Claim): readonly string[] {
    const { timeline, leaseMs } = this.#evidence;
    const suspension = timeline.suspension(replica, from, at);
    if (suspension === undefined && at <= until + leaseMs / 6) return [];
    if (at <= from + leaseMs && timeline.clockWasStepped(from - LONGEST_CLAIM_MS, until)) return [];
    if (suspension === undefined) return [`came from ${replica} after a claim that ended ${end}, without a suspension`];
    const keys = this.#late.get(suspension) ?? [];
    this.#late.set(suspension, keys);
    const isSecond = keys.includes(key);
    keys.push(key);
    if (!isSecond && keys.length <= this.#evidence.concurrency) return [];
    const what = isSecond ? "as another one of its key" : `as one of more than ${this.#evidence.concurrency}`;
    return [`came from ${replica} after a claim that ended ${end}, ${what} after one suspension`];
  }
}

/** Without requests that had no answer and were repeated on a new connection, once each. */
function withoutRepeated(arrivals: readonly Arrival[]): readonly Arrival[] {
  const kept: Arrival[] = [];
  let repetition: Arrival | undefined;
  for (const arrival of arrivals.toSorted((a, b) => a.at - b.at)) {
    const last = kept.at(-1);
    const isRepeated = last?.answered === false && last.from === arrival.from && arrival.at <= last.at + AT_ONCE_MS;
    if (isRepeated && last !== repetition) {
      kept.pop();
      repetition = arrival;
    }
    kept.push(arrival);
  }
  return kept;
}

/** As long as a busy machine may take to connect. */
const AT_ONCE_MS = 2000;
/** The lease counts from the beginning of the claim's transaction; the journal has the time when the row was changed. */
const LONGEST_CLAIM_MS = 1000;
/** Both clocks are that of this machine; one is cut off to whole milliseconds. */
const CLOCK_GRAIN_MS = 1;

/**
 * Finds the claim under which each delivery was made: the latest one of its process that had begun by then, and one delivery a claim. Begins with the last
 * delivery: a delivery that came after the next claim of the same process is left to the claim before.
 */
function attribute(arrivals: readonly Arrival[], claims: readonly Claim[]): ReadonlyMap<Arrival, Claim> {
  const delivered = new Map<Arrival, Claim>();
  const free = new Set(claims);
  for (const arrival of [...arrivals].reverse()) {
    const claim = [...free]
      .reverse()
      .find(({ replica, from }) => replica === arrival.from && from <= arrival.at + CLOCK_GRAIN_MS);
    if (claim === undefined) continue;
    free.delete(claim);
    delivered.set(arrival, claim);
  }
  return delivered;
}

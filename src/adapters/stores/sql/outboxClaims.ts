import { isRefused } from "../../../model/errors.ts";
import type { ClaimToken, MessageId, Outcome } from "../../../model/rows.ts";
import type {
  ClaimRequest,
  ClaimResult,
  ExpandResult,
  Expansion,
  SettledRows,
  UnexpandedMessage,
} from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import type { NewEntry, SqlHistory, WithHistory } from "./history.ts";
import { ONE_QUEUE, QueueFronts, REST_FACTOR } from "./queueFronts.ts";
import { type RefusedRow, Resting, requireSound } from "./refusalCheck.ts";
import {
  changeInParts,
  claimedRow,
  higher,
  idsOf,
  type LowWater,
  type Row,
  type StatementRunner,
  type Values,
} from "./rows.ts";
import { Settlements } from "./settlements.ts";
import { type Labels, NO_LABELS, UnlabelledRows } from "./unlabelledRows.ts";

/** Both statements have the same parameters. */
export interface ClaimStatement<S> {
  readonly claim: S;
  /** The `id`s of the rows that it would write now. */
  readonly chosen: S;
}

export interface ClaimStatements<S> {
  /** Rows of several queues, each in order from the low-water mark on, with rows to label. */
  readonly inOrder: ClaimStatement<S>;
  /** Of one queue: due retries, and a stretch from a cursor on without rows behind blocked keys. */
  readonly pastBlocked: ClaimStatement<S>;
  /** The same two without a condition on the destination. */
  readonly oneQueue: { readonly inOrder: ClaimStatement<S>; readonly pastBlocked: ClaimStatement<S> };
  /**
   * The first pending rows without a destination, also if set back below the mark: their `id`, `sequence`, `topic`,
   * `is_due` and `has_failed`. Undefined for a table without the columns.
   */
  readonly unlabelled: S | undefined;
  /** What a claim changes in the rows `ids`, to be rolled back: each is under its own id as the token. */
  readonly trial: S;
  /** Makes the row that was sent last pending, to be rolled back. Returns its `id`; no row without one. */
  readonly setBack: S;
  /**
   * Idle check, at a fraction of a claim's cost: whether a row from a position on (`from`) or a retry is due
   * (`answer`), and the position behind the last pending row (`end`).
   */
  readonly due: S;
  /** For `OutboxStore.expand` and `messagesToExpand`; undefined for a table without the columns. */
  readonly lists: ListStatements<S> | undefined;
  /** For `OutboxStore.glance`, by the names of its properties in snake case. */
  readonly glance: S;
  /** `noting` writes the entries of {@link ClaimDialect.entryValues}, too. */
  readonly settle: WithHistory<S>;
  /** The same of the rows that no other transaction holds. */
  readonly settleUnlocked: WithHistory<S>;
  readonly dialect: ClaimDialect;
}

/**
 * `expand` answers with the `id` of each expanded message; `noting` adds entries as in {@link ClaimStatements.settle}.
 */
export interface ListStatements<S> {
  readonly expand: WithHistory<S>;
  readonly toExpand: S;
  valuesOf(expansions: readonly Expansion[]): Values;
}

interface ClaimDialect {
  scanOf(results: readonly (readonly Row[])[]): ClaimScan;
  settleValues(outcomes: readonly Outcome[]): Values;
  /** @param entries one at least */
  entryValues(entries: readonly NewEntry[]): Values;
  /** Reads the answer of a settlement: the rows whose claim was closed. */
  closedOf(rows: readonly Row[], outcomes: readonly Outcome[]): readonly MessageId[];
  /** Whether a statement has waited for as long as it may. */
  hasGivenUp(error: unknown): boolean;
}

export interface ClaimScan {
  readonly rows: readonly Row[];
  readonly queues: readonly QueueScan[];
  /** How many rows it has labelled; others were locked. */
  readonly labelled: number;
  /** More rows wait for a label. */
  readonly hasUnlabelled: boolean;
  /** Of a stretch: the first row that it found, and the start of the next one. */
  readonly first?: string | undefined;
  readonly end?: string | undefined;
  /** Nothing is behind that stretch. */
  readonly isRead?: boolean;
  /** The claim has failed because of these. */
  readonly refused?: readonly RefusedRow[];
}

interface QueueScan {
  readonly queue: string;
  /** Due rows read, not locked by another session. */
  readonly candidates: number;
  /** Candidates that stay behind an earlier row of their key. */
  readonly heldBack: number;
  /** Sequence numbers between the first pending row of the queue and the first candidate; null if none had a label. */
  readonly gap: number | null;
}

/**
 * Claims and settles outbox rows ("Claims and order" in the design). Each destination has its queue: one statement
 * claims from all queues whose first rows are free, another past the blocked front of one. The claim of a row without a
 * destination labels it. After a claim that found nothing, an idle check comes first.
 */
export class OutboxClaims<S, Statements extends ClaimStatements<S> = ClaimStatements<S>> {
  protected readonly runner: StatementRunner<S>;
  protected readonly sql: Statements;
  protected readonly lowWater: LowWater;
  readonly #history: SqlHistory<S>;
  readonly #clock: Clock;
  protected readonly resting: Resting;
  readonly #settlements: Settlements<S>;
  readonly fronts: QueueFronts;
  /** Undefined for a table without destinations. */
  readonly #unlabelled: UnlabelledRows | undefined;
  #isIdle = false;
  /** Idle checks have read the pending rows up to there, and read them again when they are rested; monotonic ms. */
  #checkedTo = "0";
  #checksRestUntil = 0;
  #hasUnlabelled = true;
  /** When messages that were left are looked for again; monotonic ms. */
  #lookAgainAt = Number.POSITIVE_INFINITY;
  #isUnread = false;
  /** The blocked queue that was claimed from last: the others come first. */
  #lastBlocked = "";

  constructor(runner: StatementRunner<S>, sql: Statements, lowWater: LowWater, history: SqlHistory<S>, clock: Clock) {
    this.runner = runner;
    this.sql = sql;
    this.lowWater = lowWater;
    this.#history = history;
    this.#settlements = new Settlements(runner, sql, history);
    this.#clock = clock;
    this.resting = new Resting(clock);
    this.fronts = new QueueFronts(clock);
    const { unlabelled } = sql;
    if (unlabelled !== undefined) {
      this.#unlabelled = new UnlabelledRows(clock, (at, queues) =>
        runner.run(unlabelled, { ...at, exceptIds: this.#exceptIds({ queues }) }),
      );
    }
  }

  async claim(request: ClaimRequest): Promise<ClaimResult> {
    await this.lowWater.refreshIfDue();
    if (this.#isIdle) {
      if (!(await this.#anyDue())) return NOTHING;
      this.#hasUnlabelled = true;
    }
    const looksForUnlabelled = this.#hasUnlabelled;
    const parts = await this.#claimParts(request);
    const result = merged(parts);
    this.#isIdle = result.rows.length + result.heldBack === 0 && !result.more;
    const mustLook = result.rows.length === 0 && this.#hasUnlabelled && !looksForUnlabelled;
    return mustLook ? await this.claim(request) : result;
  }

  /** Claims from the queues whose fronts are free, and past one blocked front. */
  async #claimParts(request: ClaimRequest): Promise<readonly ClaimResult[]> {
    const room = this.#roomOf(request);
    const labels = await this.#labelsOf(request);
    const open = new Map([...room].filter(([queue]) => this.fronts.of(queue).isOpen));
    const parts: ClaimResult[] = [];
    if (open.size > 0 || labels.labels.length > 0) parts.push(await this.#claimInOrder(request, open, labels));
    else this.#hasUnlabelled = true;
    if (labels.lists.length > 0) {
      // They are below the position from which the claim looks for more.
      this.#hasUnlabelled = true;
      parts.push({ ...NOTHING, lists: labels.lists });
    }
    const blocked = this.#nextBlocked(room);
    const left = request.limit - (parts[0]?.rows.length ?? 0);
    if (blocked === undefined || left <= 0) return parts;
    // It continues with the keys that the first statement has given it. If it fails, the claim fails: its rows may be claimed
    // unknown to this process, and later rows of their keys must wait for the end of the lease.
    const heldTokens = [...request.heldTokens, request.token];
    return [...parts, await this.#claimPastBlocked({ ...request, heldTokens, limit: left }, blocked, room)];
  }

  get #mark(): string {
    return this.lowWater.newest;
  }

  /** Of a table without destinations all rows are one queue. */
  #roomOf({ queues, limit }: ClaimRequest): ReadonlyMap<string, number> {
    return queues === undefined || this.sql.unlabelled === undefined ? new Map([[ONE_QUEUE, limit]]) : queues.room;
  }

  async #anyDue(): Promise<boolean> {
    const startedAt = this.#clock.monotonic();
    const rests = startedAt < this.#checksRestUntil;
    const lowWater = this.lowWater.marks();
    const [row] = await this.runner.run(this.sql.due, { from: rests ? this.#checkedTo : this.#mark, lowWater });
    const endedAt = this.#clock.monotonic();
    if (!rests) this.#checksRestUntil = endedAt + Math.min(REST_FACTOR * (endedAt - startedAt), LONGEST_CHECK_REST_MS);
    this.#checkedTo = String(row?.end ?? this.#checkedTo);
    return Boolean(row?.answer);
  }

  async #labelsOf({ queues, limit }: ClaimRequest): Promise<Labels> {
    const isDue = this.#clock.monotonic() >= this.#lookAgainAt;
    if (queues === undefined || !(this.#hasUnlabelled || isDue)) return NO_LABELS;
    // Rows with a label may have waited for longer.
    const wanted = this.#isUnread ? Math.ceil(limit / 2) : limit;
    const labels = (await this.#unlabelled?.look(queues, limit, wanted, this.#mark)) ?? NO_LABELS;
    this.#lookAgainAt = labels.isLeft === true ? this.#clock.monotonic() + LOOK_AGAIN_MS : Number.POSITIVE_INFINITY;
    return labels;
  }

  #nextBlocked(room: ReadonlyMap<string, number>): string | undefined {
    const blocked = [...room.keys()].filter((queue) => {
      const front = this.fronts.of(queue);
      return !front.isOpen && front.isRested;
    });
    const next = blocked[blocked.indexOf(this.#lastBlocked) + 1] ?? blocked[0];
    if (next !== undefined) this.#lastBlocked = next;
    return next;
  }

  async #claimInOrder(
    request: ClaimRequest,
    room: ReadonlyMap<string, number>,
    { labels, to }: Labels,
  ): Promise<ClaimResult> {
    const startedAt = this.#clock.monotonic();
    const mark = this.#mark;
    const wanted = labels.filter(({ isWanted }) => isWanted).length;
    const values = {
      from: mark,
      // No claim has more rows than its limit, labelled or not.
      limit: Math.max(0, request.limit - wanted),
      destinations: [...room.keys()],
      rooms: [...room.values()],
      labelledIds: labels.map(({ id }) => id),
      labels: labels.map(({ destination }) => destination),
      wanted: labels.map(({ isWanted }) => isWanted),
      lookedTo: to,
    };
    const { inOrder } = room.has(ONE_QUEUE) ? this.sql.oneQueue : this.sql;
    const scan = await this.#scan(inOrder, request, values);
    if (scan.refused !== undefined) return { ...NOTHING, more: true, refused: scan.refused };
    const tookMs = this.#clock.monotonic() - startedAt;
    this.#hasUnlabelled = scan.hasUnlabelled;
    if (to !== null && scan.labelled < labels.length) this.#unlabelled?.foundLocked(to);
    const nameOf = (queue: string) => (room.has(ONE_QUEUE) ? ONE_QUEUE : queue);
    const found = new Map(scan.queues.map((each) => [nameOf(each.queue), each]));
    const isFull = scan.queues.reduce((sum, each) => sum + each.candidates, 0) >= request.limit;
    for (const [queue, rows] of room) {
      const scanned = found.get(queue);
      // The others had used up the limit before it was read.
      if (scanned === undefined && isFull) continue;
      const { candidates, heldBack, gap } = scanned ?? NOT_FOUND;
      const isQueueFull = isFull || candidates >= rows;
      this.fronts.of(queue).claimedInOrder({ candidates, heldBack, gap: gap ?? 0, isFull: isQueueFull }, mark, tookMs);
    }
    const unread = new Set(
      [...room]
        .filter(([queue, rows]) => isFull || (found.get(queue)?.candidates ?? 0) >= rows)
        .map(([queue]) => queue),
    );
    this.#isUnread = isFull && scan.queues.some(({ gap }) => gap !== null);
    return resultOf(scan, request, unread, scan.hasUnlabelled);
  }

  async #claimPastBlocked(
    request: ClaimRequest,
    queue: string,
    room: ReadonlyMap<string, number>,
  ): Promise<ClaimResult> {
    const front = this.fronts.of(queue);
    const startedAt = this.#clock.monotonic();
    const { from, isSweep } = front.stretch(this.#mark);
    const limit = Math.min(request.limit, room.get(queue) ?? request.limit);
    const { pastBlocked } = queue === ONE_QUEUE ? this.sql.oneQueue : this.sql;
    const scan = await this.#scan(pastBlocked, request, { from, limit, destination: queue });
    if (scan.refused !== undefined) return { ...NOTHING, more: true, refused: scan.refused };
    const { first, end = from, isRead } = scan;
    front.claimedStretch(isSweep, { first, end, isRead, tookMs: this.#clock.monotonic() - startedAt });
    const isUnread = scan.rows.length > 0 || !isRead || isSweep;
    return resultOf(scan, request, new Set(isUnread ? [queue] : []), false);
  }

  /** If the database refuses chosen rows, claims none, and these rest: the next claims leave them out. */
  async #scan({ claim, chosen }: ClaimStatement<S>, request: ClaimRequest, more: Values): Promise<ClaimScan> {
    const { maxBytes, token, heldTokens, leaseMs, claimTimeoutMs } = request;
    const values = {
      ...NOT_LABELLED,
      ...more,
      exceptIds: this.#exceptIds(request),
      routes: request.queues?.routing.hash ?? null,
      maxBytes,
      token,
      leaseMs: Math.min(leaseMs, claimTimeoutMs),
      claimTimeoutMs,
      lowWater: this.lowWater.marks(),
      heldTokens,
    };
    let results: readonly (readonly Row[])[];
    try {
      results = await this.runner.runAll(claim, values);
    } catch (error) {
      return { ...NOT_CLAIMED, refused: await this.#restRefused(chosen, values, error) };
    }
    const scan = this.sql.dialect.scanOf(results);
    const [first, ...others] = scan.rows.map(({ sequence }) => String(sequence));
    if (first !== undefined) this.lowWater.notePosition(others.reduce(higher, first));
    return scan;
  }

  async expand(expansions: readonly Expansion[]): Promise<ExpandResult> {
    const { lists, dialect } = this.sql;
    if (lists === undefined || expansions.length === 0) return { expanded: 0, refused: [] };
    const { results, refused } = await changeInParts(expansions, async (part) => {
      const entries = part.flatMap(({ id, skipped }) => skipped.map((each) => skippedEntry(id, each)));
      const values = lists.valuesOf(part);
      const noting = entries.length === 0 ? values : { ...values, ...dialect.entryValues(entries) };
      const run = (statement: S) => this.runner.run(statement, noting);
      const rows = await (entries.length === 0 ? run(lists.expand.plain) : this.#history.noting(lists.expand, run));
      return idsOf(rows).filter((id) => id !== null);
    });
    const left = [...refused].map(([{ id }, { message }]) => ({ id, source: "", reason: message }));
    this.resting.add(left);
    // They may be below the cursors of their queues.
    const destinations = new Set(expansions.flatMap(({ deliveries }) => deliveries.map((each) => each.destination)));
    for (const destination of destinations) this.fronts.of(destination).sweepSoon();
    this.#isIdle = false;
    this.#hasUnlabelled = true;
    return { expanded: results.flat().length, refused: left };
  }

  async messagesToExpand(ids: readonly MessageId[]): Promise<readonly UnexpandedMessage[]> {
    const { lists } = this.sql;
    if (lists === undefined) return [];
    const rows = await this.runner.run(lists.toExpand, { ids, maxBytes: MOST_EXPANDED_BYTES });
    return rows.map((row) => claimedRow(row, "" as ClaimToken));
  }

  #exceptIds({ queues }: Pick<ClaimRequest, "queues">): readonly MessageId[] {
    return [...this.resting.ids(), ...(queues?.exceptIds ?? []), ...(queues?.expansion?.running ?? [])];
  }

  /** @throws the failure if no row is refused alone, StoreError `schema` if the table is the cause */
  async #restRefused(chosen: S, values: Values, failure: unknown): Promise<readonly RefusedRow[]> {
    if (!isRefused(failure)) throw failure;
    const { results, refused } = await changeInParts(idsOf(await this.runner.run(chosen, values)), (ids) =>
      this.runner.runAndRollBack((run) => run(this.sql.trial, { ...values, ids })),
    );
    const [first] = refused.values();
    if (first === undefined) throw failure;
    if (results.length === 0) await requireSound(first, () => this.#settlements.acceptsAgain());
    const rows = [...refused].map(([id, { message }]) => ({ id, reason: message }));
    this.resting.add(rows);
    return rows;
  }

  async check(): Promise<void> {
    await this.#settlements.check();
  }

  async settle(outcomes: readonly Outcome[]): Promise<SettledRows> {
    const settled = await this.#settlements.settle(outcomes);
    if (settled.closed.size > 0) this.fronts.finished();
    for (const { kind, destination } of outcomes) {
      if (destination === undefined) continue;
      const front = this.fronts.of(this.sql.unlabelled === undefined ? ONE_QUEUE : destination);
      if (kind === "retry") front.putOff();
      else front.sweepSoon();
    }
    return settled;
  }
}

function resultOf(
  { rows, queues }: ClaimScan,
  { token }: ClaimRequest,
  unread: ReadonlySet<string>,
  hasUnlabelled: boolean,
): ClaimResult {
  return {
    rows: rows.map((row) => claimedRow(row, token)),
    more: unread.size > 0 || hasUnlabelled,
    heldBack: queues.reduce((sum, each) => sum + each.heldBack, 0),
    unread,
  };
}

function merged(parts: readonly ClaimResult[]): ClaimResult {
  if (parts.length === 1) return parts[0] ?? NOTHING;
  const refused = parts.flatMap((part) => part.refused ?? []);
  return {
    rows: parts.flatMap(({ rows }) => rows),
    lists: parts.flatMap(({ lists = [] }) => lists),
    more: parts.some(({ more }) => more),
    heldBack: parts.reduce((sum, { heldBack }) => sum + heldBack, 0),
    unread: new Set(parts.flatMap(({ unread = [] }) => [...unread])),
    ...(refused.length === 0 ? {} : { refused }),
  };
}

const skippedEntry = (id: MessageId, { destination, reason }: Expansion["skipped"][number]): NewEntry => ({
  ...{ id, event: "skipped", destination, reason },
  ...{ attempt: null, actor: null, code: null, status: null, durationMs: null },
});

/** Of the messages whose conditions are evaluated at a time. */
const MOST_EXPANDED_BYTES = 16 * 1024 * 1024;

const NOTHING: ClaimResult = { rows: [], more: false, heldBack: 0 };
const NOT_CLAIMED: ClaimScan = { rows: [], queues: [], labelled: 0, hasUnlabelled: true };
const NOT_LABELLED = { labelledIds: [], labels: [], routes: "" };
const NOT_FOUND = { candidates: 0, heldBack: 0, gap: 0 };

/** Thousands of rows that are not due make an idle check slow: it takes a tenth of the time, but for new rows and retries. */
const LONGEST_CHECK_REST_MS = 1000;
const LOOK_AGAIN_MS = 1000;

import type { ClaimToken, MessageId } from "../../../model/rows.ts";
import {
  type DestinationBacklog,
  type Lease,
  type ListStore,
  NO_DESTINATION,
  type OutboxBacklog,
  type OutboxGlance,
  type OutboxStore,
  type RelabelResult,
  type TopicRouting,
} from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import type { SqlHistory } from "./history.ts";
import { type ClaimStatements, OutboxClaims } from "./outboxClaims.ts";
import type { LowWater } from "./rows.ts";
import { changeInParts, idsOf, type Named, oldestAgeMs, type Row, type StatementRunner, textOf } from "./rows.ts";

export interface OutboxStatements<S> extends ClaimStatements<S> {
  readonly renew: S;
  readonly expired: S;
  /** Makes those of the rows `ids` pending whose lease has ended. */
  readonly reclaim: S;
  /** One row with the time, `ms`. */
  readonly clock: S;
  readonly backlog: S;
  readonly backlogTotals: S;
  /** Undefined for a table without labels. */
  readonly labels: LabelStatements<S> | undefined;
}

/** `relabel` answers with `looked_at`, `found`, `last_destination` and `last_sequence`; `waiting` with a `name` a row. */
export type LabelStatements<S> = Named<S, "relabel" | "waiting">;

export class SqlOutbox<S> extends OutboxClaims<S, OutboxStatements<S>> implements OutboxStore, ListStore {
  readonly #routing: TopicRouting | undefined;

  /** @param routing for the figures of rows that have no label yet */
  constructor(
    runner: StatementRunner<S>,
    sql: OutboxStatements<S>,
    lowWater: LowWater,
    history: SqlHistory<S>,
    clock: Clock,
    routing: TopicRouting | undefined,
  ) {
    super(runner, sql, lowWater, history, clock);
    this.#routing = routing;
  }

  get hasQueues(): boolean {
    return this.sql.unlabelled !== undefined;
  }

  async glance(overdueMs: number): Promise<OutboxGlance> {
    await this.lowWater.refreshIfDue(GLANCE_READ_INTERVAL_MS);
    const [row] = await this.runner.run(this.sql.glance, { overdueMs, lowWater: this.lowWater.marks() });
    return { isOverdue: Boolean(row?.is_overdue), isWatched: Boolean(row?.is_watched) };
  }

  async renew(tokens: readonly ClaimToken[], { leaseMs, claimTimeoutMs }: Lease): Promise<ReadonlySet<MessageId>> {
    const { results } = await changeInParts(tokens, async (part) => {
      const values = { tokens: part, leaseMs, claimTimeoutMs, lowWater: this.lowWater.marks() };
      return idsOf(await this.runner.run(this.sql.renew, values));
    });
    return new Set(results.flat());
  }

  async reclaim(limit: number, claimTimeoutMs: number): Promise<number> {
    // A row that refuses costs several statements: once in a while, not every second in every process.
    const resting = new Set(this.resting.ids());
    const values = { limit: limit + resting.size, claimTimeoutMs, lowWater: this.lowWater.marks() };
    const expired = idsOf(await this.runner.run(this.sql.expired, values));
    const { results, refused } = await changeInParts(
      expired.filter((id) => !resting.has(id)),
      async (ids) => idsOf(await this.runner.run(this.sql.reclaim, { ids, claimTimeoutMs })),
    );
    this.resting.add([...refused].map(([id, { message }]) => ({ id, reason: message })));
    const reclaimed = results.flat();
    // The caller must see why only refused rows are left: each time that they have rested.
    for (const error of refused.values()) if (reclaimed.length === 0) throw error;
    if (reclaimed.length > 0) this.fronts.sweepSoon();
    return reclaimed.length;
  }

  async clock(): Promise<number> {
    const [row] = await this.runner.run(this.sql.clock);
    return Number(row?.ms);
  }

  async backlog(request: { readonly totalsOnly: boolean } | undefined): Promise<OutboxBacklog> {
    const { backlog, backlogTotals } = this.sql;
    const statement = request?.totalsOnly ? backlogTotals : backlog;
    return backlogOf(await this.runner.run(statement, { lowWater: this.lowWater.marks() }), this.#routing);
  }

  async relabel(keep: readonly string[], after: string | null, limit: number): Promise<RelabelResult> {
    const { labels } = this.sql;
    if (labels === undefined) return { next: null, found: 0 };
    const [fromDestination, fromSequence] = after === null ? BEFORE_ALL : (JSON.parse(after) as [string, string]);
    const values = { keep, fromDestination, fromSequence, isFirst: after === null ? 1 : 0, limit };
    const [row] = await this.runner.run(labels.relabel, values);
    const found = Number(row?.found ?? 0);
    if (found > 0) this.fronts.sweepSoon();
    const isLast = Number(row?.looked_at ?? 0) < limit;
    return { next: isLast ? null : JSON.stringify([row?.last_destination, row?.last_sequence]), found };
  }

  async destinationsWaiting(): Promise<readonly string[]> {
    const { labels } = this.sql;
    if (labels === undefined) return [];
    return (await this.runner.run(labels.waiting, { limit: MOST_NAMES })).map(({ name }) => String(name));
  }
}

/** A position in the order of destination and sequence. */
const BEFORE_ALL = ["", "-1"] as const;
const MOST_NAMES = 10_000;

/** A process that only glances leaves rows that are committed late to others. */
const GLANCE_READ_INTERVAL_MS = 10_000;

/**
 * @param rows one for each destination, topic of rows without one, or without either; each has the figures of all
 * @param routing for rows that have no label yet
 */
function backlogOf(rows: readonly Row[], routing: TopicRouting | undefined): OutboxBacklog {
  const [first] = rows;
  const byDestination = new Map<string, DestinationBacklog>();
  for (const row of rows) {
    if (!row.is_destination) continue;
    for (const destination of destinationsOf(row, routing)) {
      const before = byDestination.get(destination) ?? EMPTY;
      const ages = [before.oldestPendingAgeMs, oldestAgeMs(row)].filter((age) => age !== null);
      byDestination.set(destination, {
        pending: before.pending + Number(row.pending),
        due: before.due + Number(row.due),
        oldestPendingAgeMs: ages.length === 0 ? null : Math.max(...ages),
        processing: before.processing + Number(row.processing),
        blockedKeys: before.blockedKeys + Number(row.blocked),
        parked: before.parked + Number(row.parked_there),
      });
    }
  }
  return {
    pending: Number(first?.all_pending ?? 0),
    oldestPendingAgeMs: oldestAgeMs({ oldest_ms: first?.all_oldest_ms }),
    blockedKeys: Number(first?.blocked_keys ?? 0),
    parked: Number(first?.parked ?? 0),
    byDestination,
  };
}

/** A message that waits to be expanded counts at each of its destinations. */
function destinationsOf(row: Row, routing: TopicRouting | undefined): readonly string[] {
  const destination = textOf(row.destination);
  const topic = textOf(row.topic);
  if (destination !== null || topic === null) return [destination ?? NO_DESTINATION];
  return routing?.listOf?.(topic) ?? [routing?.destinationOf(topic) ?? NO_DESTINATION];
}

const EMPTY: DestinationBacklog = {
  pending: 0,
  due: 0,
  oldestPendingAgeMs: null,
  processing: 0,
  blockedKeys: 0,
  parked: 0,
};

import { isRefused } from "../../../model/errors.ts";
import type { ClaimToken, MessageId } from "../../../model/rows.ts";
import type { DestinationBacklog, Lease, OutboxBacklog, OutboxGlance, OutboxStore } from "../../../ports/store.ts";
import { type ClaimStatements, OutboxClaims } from "./claims.ts";
import { changeInParts, idsOf, oldestAgeMs, type Row } from "./rows.ts";

export interface OutboxStatements<S> extends ClaimStatements<S> {
  readonly renew: S;
  readonly reclaim: S;
  /** One row with the time, `ms`. */
  readonly clock: S;
  /** The rows that `reclaim` would return to pending. */
  readonly expired: S;
  readonly reclaimNamed: S;
  readonly backlog: S;
  readonly backlogTotals: S;
}

/** The outbox of a SQL database: its claims, the upkeep of their leases, and its backlog. */
export class SqlOutbox<S> extends OutboxClaims<S, OutboxStatements<S>> implements OutboxStore {
  async glance(overdueMs: number): Promise<OutboxGlance> {
    await this.lowWater.refreshIfDue(GLANCE_READ_INTERVAL_MS);
    const [row] = await this.runner.run(this.sql.glance, { overdueMs, lowWater: this.lowWater.bound() });
    return {
      isOverdue: Boolean(row?.is_overdue),
      isCalled: Boolean(row?.is_called),
      isWatched: Boolean(row?.is_watched),
    };
  }

  async renew(tokens: readonly ClaimToken[], { leaseMs, claimTimeoutMs }: Lease): Promise<ReadonlySet<MessageId>> {
    const { results } = await changeInParts(tokens, async (part) => {
      const values = { tokens: part, leaseMs, claimTimeoutMs, lowWater: this.lowWater.bound() };
      return idsOf(await this.runner.run(this.sql.renew, values));
    });
    return new Set(results.flat());
  }

  async reclaim(limit: number, claimTimeoutMs: number): Promise<number> {
    const values = { limit, claimTimeoutMs, lowWater: this.lowWater.bound() };
    let reclaimed: readonly MessageId[];
    try {
      reclaimed = idsOf(await this.runner.run(this.sql.reclaim, values));
    } catch (error) {
      // All that it chose are skipped.
      if (!isRefused(error) || error.code === "skipped") throw error;
      const expired = idsOf(await this.runner.run(this.sql.expired, values));
      const { results } = await changeInParts(expired, async (ids) =>
        idsOf(await this.runner.run(this.sql.reclaimNamed, { ids, claimTimeoutMs })),
      );
      reclaimed = results.flat();
      // Only refused rows are left: the caller must see why.
      if (reclaimed.length === 0) throw error;
    }
    if (reclaimed.length > 0) this.hints.sweepSoon();
    return reclaimed.length;
  }

  async clock(): Promise<number> {
    const [row] = await this.runner.run(this.sql.clock);
    return Number(row?.ms);
  }

  async backlog(request: { readonly totalsOnly: boolean } | undefined): Promise<OutboxBacklog> {
    const { backlog, backlogTotals } = this.sql;
    const statement = request?.totalsOnly ? backlogTotals : backlog;
    return backlogOf(await this.runner.run(statement, { lowWater: this.lowWater.bound() }));
  }
}

/** A process that only glances leaves rows that are committed late to others. */
const GLANCE_READ_INTERVAL_MS = 10_000;

/** @param rows one for each destination, or one without any; each has the figures of all */
function backlogOf(rows: readonly Row[]): OutboxBacklog {
  const [first] = rows;
  const byDestination = new Map<string, DestinationBacklog>();
  for (const row of rows) {
    if (typeof row.destination !== "string") continue;
    byDestination.set(row.destination, {
      pending: Number(row.pending),
      oldestPendingAgeMs: oldestAgeMs(row),
      processing: Number(row.processing),
      blockedKeys: Number(row.blocked),
    });
  }
  return {
    pending: Number(first?.all_pending ?? 0),
    oldestPendingAgeMs: oldestAgeMs({ oldest_ms: first?.all_oldest_ms }),
    blockedKeys: Number(first?.blocked_keys ?? 0),
    parked: Number(first?.parked ?? 0),
    byDestination,
  };
}

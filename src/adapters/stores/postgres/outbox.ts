import type { Settlement } from "../../../model/outcomes.ts";
import type { ClaimedRow, ClaimToken, MessageId } from "../../../model/rows.ts";
import type { Clock } from "../../../ports/runtime.ts";
import type { ClaimRequest, ClaimResult, Lease, OutboxBacklog, OutboxStore } from "../../../ports/store.ts";
import { bisect } from "../sql/bisect.ts";
import { headersOf } from "../sql/headers.ts";
import { ClaimHints } from "../sql/hints.ts";
import { uuidArray } from "./binaryArray.ts";
import { isRefused } from "./errors.ts";
import type { Looks } from "./looks.ts";
import type { OutboxStatements } from "./outboxSql.ts";
import type { PostgresPool, Row, Statement } from "./pool.ts";

/** What one run of a claim statement found. */
interface Scan extends ClaimResult {
  readonly firstCandidate: string | undefined;
}

/** The outbox on PostgreSQL (design, "Claims and order"). */
export class PostgresOutbox implements OutboxStore {
  readonly #pool: PostgresPool;
  readonly #sql: OutboxStatements;
  readonly #looks: Looks;
  readonly #clock: Clock;
  readonly #hints: ClaimHints;
  /** The last claim met no due row at all. */
  #idle = false;

  constructor(pool: PostgresPool, statements: OutboxStatements, looks: Looks, clock: Clock) {
    this.#pool = pool;
    this.#sql = statements;
    this.#looks = looks;
    this.#clock = clock;
    this.#hints = new ClaimHints(clock);
  }

  async claim(request: ClaimRequest): Promise<ClaimResult> {
    if (this.#hints.markIsDue()) await this.#refreshMark();
    if (this.#idle && !(await this.#looks.ask(this.#sql.due, this.#hints.mark))) return NOTHING;
    const { cursor } = this.#hints;
    if (cursor !== undefined && !this.#hints.startsAtMark()) {
      const scan = await this.#scan(this.#sql.claimPastBlockedKeys(request.limit), request, cursor);
      if (scan.firstCandidate !== undefined) this.#hints.advance(scan.firstCandidate);
      return scan;
    }
    const front = await this.#scan(this.#sql.claimInOrder(request.limit), request, this.#hints.mark);
    if (!front.more || front.heldBack * 2 <= request.limit) {
      this.#hints.frontIsFree();
      return front;
    }
    const past = await this.#sweep(request, request.limit - front.rows.length);
    return {
      rows: [...front.rows, ...past.rows],
      more: past.more,
      heldBack: front.heldBack + past.heldBack,
    };
  }

  async renew(tokens: readonly ClaimToken[], lease: Lease): Promise<ReadonlySet<MessageId>> {
    if (tokens.length === 0) return new Set();
    return idsOf(await this.#pool.run(this.#sql.renew, [tokens, lease.leaseMs, lease.claimTimeoutMs]));
  }

  async settle(settlements: readonly Settlement[]): Promise<ReadonlySet<MessageId>> {
    const closed = new Set<MessageId>();
    await bisect(settlements, async (part) => {
      try {
        await this.#settleAll(part, closed);
        return "done";
      } catch (error) {
        if (!isRefused(error)) throw error;
        if (part.length > 1) return "split";
        // Only a reason can be refused as data (an owner's narrow last_error column): the outcome matters more than its words.
        await this.#settleAll(part.map(withoutReason), closed);
        return "done";
      }
    });
    for (const settlement of settlements) {
      if (settlement.kind === "retry") this.#hints.sweepWithin(settlement.delayMs);
    }
    return closed;
  }

  async reclaim(limit: number, claimTimeoutMs: number): Promise<number> {
    const rows = await this.#pool.run(this.#sql.reclaim, [limit, claimTimeoutMs]);
    if (rows.length > 0) this.#hints.sweepWithin(0);
    return rows.length;
  }

  async backlog(): Promise<OutboxBacklog> {
    const [row] = await this.#pool.run(this.#sql.backlog);
    const oldest = row?.oldest_ms;
    return {
      pending: Number(row?.pending ?? 0),
      oldestPendingAgeMs: oldest === null || oldest === undefined ? null : Math.max(0, Number(oldest)),
      blockedKeys: Number(row?.blocked_keys ?? 0),
    };
  }

  async #refreshMark(): Promise<void> {
    const [row] = await this.#pool.run(this.#sql.mark);
    const mark = row?.mark;
    const snapshot = { oldestRunning: BigInt(String(row?.oldest_running)), next: BigInt(String(row?.next)) };
    this.#hints.setMark(typeof mark === "string" ? mark : undefined, snapshot);
  }

  /** Most of the front is held back: claims from the mark past the blocked keys, and remembers where the free rows begin. */
  async #sweep(request: ClaimRequest, limit: number): Promise<Scan> {
    const startedAt = this.#clock.monotonic();
    // Read before the scan: a row that comes in behind this position while the scan runs is then still in front of the cursor.
    const [row] = await this.#pool.run(this.#sql.end);
    const scan = await this.#scan(this.#sql.claimPastBlockedKeys(), { ...request, limit }, this.#hints.mark);
    const tookMs = this.#clock.monotonic() - startedAt;
    this.#hints.frontIsBlocked(scan.firstCandidate ?? String(row?.end ?? this.#hints.mark), tookMs);
    return scan;
  }

  async #scan(statement: Statement, request: ClaimRequest, from: string): Promise<Scan> {
    const [counts, ...rows] = await this.#pool.run(statement, [
      from,
      request.limit,
      request.maxBytes,
      request.token,
      request.leaseMs,
      request.claimTimeoutMs,
      this.#hints.settledMark,
      request.heldTokens,
    ]);
    const candidates = Number(counts?.candidates ?? 0);
    const firstCandidate = counts?.first_candidate;
    this.#idle = candidates === 0;
    return {
      rows: rows.map((row) => claimedRow(row, request.token)),
      more: counts?.more === true,
      heldBack: candidates - Number(counts?.free ?? 0),
      firstCandidate: typeof firstCandidate === "string" ? firstCandidate : undefined,
    };
  }

  /** @param closed takes the ids of the rows whose claim was closed */
  async #settleAll(settlements: readonly Settlement[], closed: Set<MessageId>): Promise<void> {
    const [row] = await this.#pool.run(this.#sql.settle, [
      uuidArray(settlements.map((settlement) => settlement.id)),
      uuidArray(settlements.map((settlement) => settlement.claimToken)),
      ...(settlements.every(({ kind }) => kind === "sent") ? ALL_SENT : outcomeColumns(settlements)),
    ]);
    // No list of ids means that all were closed, or none.
    if (row?.closed) for (const id of row.closed as MessageId[]) closed.add(id);
    else if (row?.count !== "0") for (const { id } of settlements) closed.add(id);
  }
}

const NOTHING: ClaimResult = { rows: [], more: false, heldBack: 0 };

const STATE_AFTER = { sent: "sent", retry: "pending", dead: "dead", release: "pending" } as const;

const ALL_SENT: readonly unknown[] = [[], [], [], []];

function outcomeColumns(settlements: readonly Settlement[]): readonly unknown[] {
  return [
    settlements.map((settlement) => STATE_AFTER[settlement.kind]),
    settlements.map(attemptsOf),
    settlements.map((settlement) => (settlement.kind === "retry" ? Math.round(settlement.delayMs) : null)),
    settlements.map((settlement) => ("reason" in settlement ? settlement.reason : null)),
  ];
}

function attemptsOf(settlement: Settlement): number {
  if (settlement.kind === "retry") return 1;
  return settlement.kind === "dead" && settlement.attempted ? 1 : 0;
}

function withoutReason(settlement: Settlement): Settlement {
  return "reason" in settlement ? { ...settlement, reason: "the reason could not be stored" } : settlement;
}

function idsOf(rows: readonly Row[]): ReadonlySet<MessageId> {
  return new Set(rows.map((row) => row.id as MessageId));
}

function claimedRow(row: Row, token: ClaimToken): ClaimedRow {
  return {
    id: row.id as MessageId,
    claimToken: token,
    sequence: row.sequence as string,
    topic: row.topic as string,
    key: row.key as string | null,
    aggregateType: row.aggregate_type as string | null,
    payload: row.payload as string,
    headers: headersOf(row.headers),
    attempt: row.attempt as number,
    maxAttempts: row.max_attempts as number,
    createdAt: row.created_at as Date,
  };
}

import type { Settlement } from "../../../model/outcomes.ts";
import type { ClaimedRow, ClaimToken, MessageId } from "../../../model/rows.ts";
import type { Clock } from "../../../ports/runtime.ts";
import type { ClaimRequest, ClaimResult, Lease, OutboxBacklog, OutboxStore } from "../../../ports/store.ts";
import { bisect } from "../sql/bisect.ts";
import { headersOf } from "../sql/headers.ts";
import { ClaimHints } from "../sql/hints.ts";
import { isRefused } from "./errors.ts";
import { type OutboxStatements, SETTLED_TEXTS } from "./outboxSql.ts";
import type { Row, SqlServerPool, Statement } from "./pool.ts";
import { textBatch } from "./texts.ts";

/** What one run of a claim statement found. */
interface Scan extends ClaimResult {
  readonly firstPosition: string | undefined;
}

/**
 * The outbox on SQL Server (design, "Claims and order"). Finished rows leave the filtered indexes with their commit, so there are no
 * low-water marks: claims start at the front, or at the cursor past blocked keys. Only while row versions are kept for a transaction that stays
 * open do claims walk over the entries of rows that have finished since.
 */
export class SqlServerOutbox implements OutboxStore {
  readonly #pool: SqlServerPool;
  readonly #sql: OutboxStatements;
  readonly #clock: Clock;
  readonly #hints: ClaimHints;
  /** The last claim met no due row at all. */
  #idle = false;

  constructor(pool: SqlServerPool, statements: OutboxStatements, clock: Clock) {
    this.#pool = pool;
    this.#sql = statements;
    this.#clock = clock;
    this.#hints = new ClaimHints(clock);
  }

  async claim(request: ClaimRequest): Promise<ClaimResult> {
    if (this.#idle && !(await this.#anyDue())) return NOTHING;
    const { cursor } = this.#hints;
    if (cursor !== undefined && !this.#hints.startsAtMark()) {
      const scan = await this.#scan(this.#sql.claimPastBlockedKeys, request, cursor);
      if (scan.firstPosition !== undefined) this.#hints.advance(scan.firstPosition);
      return scan;
    }
    const front = await this.#scan(this.#sql.claimInOrder, request, FRONT);
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
    const renewed = await this.#pool.run(this.#sql.renew, {
      tokens: JSON.stringify(tokens),
      leaseMs: wholeMs(lease.leaseMs),
      claimTimeoutMs: wholeMs(lease.claimTimeoutMs),
    });
    return new Set(idsOf(renewed));
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
    const [row] = await this.#pool.run(this.#sql.reclaim, { limit, claimTimeoutMs: wholeMs(claimTimeoutMs) });
    const reclaimed = Number(row?.reclaimed ?? 0);
    if (reclaimed > 0) this.#hints.sweepWithin(0);
    return reclaimed;
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

  async #anyDue(): Promise<boolean> {
    const [row] = await this.#pool.run(this.#sql.due);
    return row?.due === 1;
  }

  /** Most of the front is held back: claims from the front past the blocked keys, and remembers where the free rows begin. */
  async #sweep(request: ClaimRequest, limit: number): Promise<Scan> {
    const startedAt = this.#clock.monotonic();
    // Read before the scan: a row that comes in behind this position while the scan runs is then still in front of the cursor.
    const [row] = await this.#pool.run(this.#sql.end);
    const scan = await this.#scan(this.#sql.claimPastBlockedKeys, { ...request, limit }, FRONT);
    const tookMs = this.#clock.monotonic() - startedAt;
    this.#hints.frontIsBlocked(scan.firstPosition ?? String(row?.end ?? FRONT), tookMs);
    return scan;
  }

  async #scan(statement: Statement, request: ClaimRequest, from: string): Promise<Scan> {
    const [counts, rows] = await this.#pool.runAll(statement, {
      from,
      limit: request.limit,
      maxBytes: request.maxBytes,
      token: request.token,
      leaseMs: wholeMs(Math.min(request.leaseMs, request.claimTimeoutMs)),
      heldTokens: JSON.stringify(request.heldTokens),
    });
    const [count] = counts ?? [];
    const positions = Number(count?.positions ?? 0);
    const firstPosition = count?.first_position;
    this.#idle = positions === 0;
    return {
      rows: (rows ?? []).map((row) => claimedRow(row, request.token)),
      more: positions >= request.limit || count?.lost === true,
      heldBack: Number(count?.held_back ?? 0),
      firstPosition: firstPosition === null || firstPosition === undefined ? undefined : String(firstPosition),
    };
  }

  /** @param closed takes the ids of the rows whose claim was closed */
  async #settleAll(settlements: readonly Settlement[], closed: Set<MessageId>): Promise<void> {
    const rows = await this.#pool.run(this.#sql.settle, textBatch(settlements.map(outcomeOf), SETTLED_TEXTS));
    for (const id of idsOf(rows)) closed.add(id);
  }
}

const NOTHING: ClaimResult = { rows: [], more: false, heldBack: 0 };

/** Identities count from 1. */
const FRONT = "0";

const STATE_AFTER = { sent: "sent", retry: "pending", dead: "dead", release: "pending" } as const;

function outcomeOf(settlement: Settlement) {
  return {
    id: settlement.id,
    token: settlement.claimToken,
    state: STATE_AFTER[settlement.kind],
    attempts: attemptsOf(settlement),
    delay: settlement.kind === "retry" ? wholeMs(settlement.delayMs) : null,
    reason: "reason" in settlement ? settlement.reason : null,
  };
}

function attemptsOf(settlement: Settlement): number {
  if (settlement.kind === "retry") return 1;
  return settlement.kind === "dead" && settlement.attempted ? 1 : 0;
}

function withoutReason(settlement: Settlement): Settlement {
  return "reason" in settlement ? { ...settlement, reason: "the reason could not be stored" } : settlement;
}

/** DATEADD takes an `int`: the longest time is 24.8 days. */
function wholeMs(ms: number): number {
  return Math.min(Math.round(ms), 2 ** 31 - 1);
}

function idsOf(rows: readonly Row[]): MessageId[] {
  return rows.map((row) => row.id as MessageId);
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

import type { Settlement } from "../../../model/outcomes.ts";
import type { ClaimToken, MessageId } from "../../../model/rows.ts";
import type { Clock } from "../../../ports/runtime.ts";
import type { ClaimRequest, ClaimResult, Lease, OutboxBacklog, OutboxStore } from "../../../ports/store.ts";
import { type ClaimScans, claimFromFront, type Scan } from "../sql/frontClaim.ts";
import { ClaimHints } from "../sql/hints.ts";
import { backlogOf, claimedRow, idsOf } from "../sql/rows.ts";
import { attemptsOf, STATE_AFTER, settleAroundRefusal } from "../sql/settlements.ts";
import { type OutboxStatements, SETTLED_TEXTS } from "./outboxSql.ts";
import type { SqlServerPool } from "./pool.ts";
import type { Statement } from "./statement.ts";
import { textBatch } from "./texts.ts";

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
  readonly #scans: ClaimScans = {
    inOrder: (request, from) => this.#scan(this.#sql.claimInOrder, request, from),
    pastBlockedKeys: (request, from) => this.#scan(this.#sql.claimPastBlockedKeys, request, from),
    end: async () => {
      const [row] = await this.#pool.run(this.#sql.end);
      return String(row?.end ?? this.#hints.mark);
    },
  };
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
    return await claimFromFront(this.#scans, this.#hints, this.#clock, request);
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

  async settle(
    settlements: readonly Settlement[],
    onRefused: ((settlement: Settlement, reason: string) => void) | undefined,
  ): Promise<ReadonlySet<MessageId>> {
    const settle = (part: readonly Settlement[]) => this.#settleAll(part);
    return await settleAroundRefusal(settlements, this.#hints, settle, onRefused ?? (() => {}));
  }

  async reclaim(limit: number, claimTimeoutMs: number): Promise<number> {
    const [row] = await this.#pool.run(this.#sql.reclaim, { limit, claimTimeoutMs: wholeMs(claimTimeoutMs) });
    const reclaimed = Number(row?.reclaimed ?? 0);
    if (reclaimed > 0) this.#hints.sweepWithin(0);
    return reclaimed;
  }

  async backlog(): Promise<OutboxBacklog> {
    const [row] = await this.#pool.run(this.#sql.backlog);
    return backlogOf(row);
  }

  async #anyDue(): Promise<boolean> {
    const [row] = await this.#pool.run(this.#sql.due);
    return row?.due === 1;
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

  /** @returns the ids of the rows whose claim was closed */
  async #settleAll(settlements: readonly Settlement[]): Promise<readonly MessageId[]> {
    return idsOf(await this.#pool.run(this.#sql.settle, textBatch(settlements.map(outcomeOf), SETTLED_TEXTS)));
  }
}

const NOTHING: ClaimResult = { rows: [], more: false, heldBack: 0 };

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

/** DATEADD takes an `int`: the longest time is 24.8 days. */
function wholeMs(ms: number): number {
  return Math.min(Math.round(ms), 2 ** 31 - 1);
}

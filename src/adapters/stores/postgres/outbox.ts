import type { ClaimToken, MessageId, Outcome } from "../../../model/rows.ts";
import type { ClaimRequest, ClaimResult, ClaimScope, Lease, OutboxBacklog, OutboxStore } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { type ClaimScans, claimByHints, type Scan } from "../sql/frontClaim.ts";
import { OutboxHints } from "../sql/hints.ts";
import { changeAroundRefusal, isRefused } from "../sql/refused.ts";
import { type ClaimTrials, LeftOut, TRIAL_ROWS } from "../sql/refusedClaims.ts";
import { backlogOf, claimedRow, idsOf } from "../sql/rows.ts";
import { attemptsOf, delayOf, STATE_AFTER, settleAroundRefusal } from "../sql/settlements.ts";
import { uuidArray } from "./binaryArray.ts";
import { isLockTimeout } from "./errors.ts";
import type { Looks } from "./looks.ts";
import { LowWater } from "./lowWater.ts";
import type { OutboxStatements } from "./outboxSql.ts";
import type { PostgresPool } from "./pool.ts";
import type { Statement } from "./statement.ts";

/** The outbox on PostgreSQL (design, "Claims and order"). */
export class PostgresOutbox implements OutboxStore {
  readonly #pool: PostgresPool;
  readonly #sql: OutboxStatements;
  readonly #looks: Looks;
  readonly #clock: Clock;
  readonly #hints: OutboxHints;
  readonly #lowWater: LowWater;
  readonly #scans: ClaimScans = {
    inOrder: (request, from) => this.#scanAll((sql) => sql.claimInOrder(request.limit), request, from),
    pastBlockedKeys: (request, from, isSweep) =>
      this.#scanAll(
        // What a sweep may still take is another number each time: no statement is made for each.
        (sql) => (isSweep ? sql.sweepPastBlockedKeys : sql.claimPastBlockedKeys(request.limit)),
        request,
        from,
      ),
    inScope: async (request, { which, destinations, exceptKeys, exceptIds = [] }, from, part) => {
      const { sweep, sweepOn, claim } = this.#sql[which];
      const leftOut = this.#leftOut.ids();
      const more = [[...leftOut, ...exceptIds], destinations, exceptKeys];
      const scan =
        part === undefined
          ? await this.#scan(claim(request.limit), request, from, more)
          : await this.#scan(part.isFirst ? sweep : sweepOn, request, from, [...more, part.to]);
      // A row that the database refused is tried again after a while, though nothing has changed.
      return leftOut.length === 0 ? scan : { ...scan, seen: undefined };
    },
    retriesInScope: (request, { which, destinations, exceptKeys, exceptIds = [] }, { from, to, withinMs }) => {
      const leftOut = [...this.#leftOut.ids(), ...exceptIds];
      const more = [leftOut, destinations, exceptKeys, to, Math.ceil(withinMs)];
      return this.#scan(this.#sql[which].claimRetries, request, from, more);
    },
    pendingBehind: async (from, rows) => {
      const [row] = await this.#pool.run(this.#sql.pendingBehind, [from, rows]);
      return row?.sequence as string | undefined;
    },
    end: async () => {
      const [row] = await this.#pool.run(this.#sql.end);
      return String(row?.end ?? this.#hints.marks.mark);
    },
    anyDue: (from) => this.#looks.ask(this.#sql.dueFrom, this.#lowWater.bound(from)),
    mayHaveChanged: (seen) => this.#looks.ask(this.#sql.mayHaveChanged, seen),
  };
  readonly #leftOut: LeftOut;
  /** The last claim of all rows met no due one. */
  #idle = false;

  constructor(pool: PostgresPool, statements: OutboxStatements, looks: Looks, clock: Clock) {
    this.#pool = pool;
    this.#sql = statements;
    this.#looks = looks;
    this.#clock = clock;
    this.#hints = new OutboxHints(clock);
    this.#leftOut = new LeftOut(clock);
    this.#lowWater = new LowWater(pool, statements.mark, clock, this.#hints.marks);
  }

  async claim(request: ClaimRequest): Promise<ClaimResult> {
    await this.#lowWater.refreshIfDue();
    if (request.scope === undefined && this.#idle && !(await this.#looks.ask(this.#sql.due, this.#lowWater.bound())))
      return NOTHING;
    try {
      return await claimByHints(this.#scans, this.#hints, this.#clock, request);
    } catch (error) {
      return { ...NOTHING, more: true, refused: await this.#leftOut.learn(this.#trials(request.scope), error) };
    }
  }

  async renew(tokens: readonly ClaimToken[], lease: Lease): Promise<ReadonlySet<MessageId>> {
    if (tokens.length === 0) return new Set();
    const renewed = new Set<MessageId>();
    await changeAroundRefusal(tokens, async (part) => {
      const values = [part, lease.leaseMs, lease.claimTimeoutMs, this.#lowWater.bound()];
      for (const id of idsOf(await this.#pool.run(this.#sql.renew, values))) renewed.add(id);
    });
    return renewed;
  }

  async settle(
    settlements: readonly Outcome[],
    onRefused: ((settlement: Outcome, reason: string) => void) | undefined,
  ): Promise<ReadonlySet<MessageId>> {
    const refused = onRefused ?? (() => {});
    const settle = (part: readonly Outcome[]) => this.#settleAll(part, refused);
    return await settleAroundRefusal(settlements, this.#hints, settle, refused);
  }

  async reclaim(limit: number, claimTimeoutMs: number): Promise<number> {
    const values = [limit, claimTimeoutMs, this.#lowWater.bound()];
    let reclaimed = 0;
    try {
      reclaimed = (await this.#pool.run(this.#sql.reclaim, values)).length;
    } catch (error) {
      if (!isRefused(error)) throw error;
      const expired = idsOf(await this.#pool.run(this.#sql.expired, values));
      await changeAroundRefusal(expired, async (ids) => {
        reclaimed += (await this.#pool.run(this.#sql.reclaimNamed, [ids])).length;
      });
      // Where only the refused are left, somebody has to be told.
      if (reclaimed === 0) throw error;
    }
    if (reclaimed > 0) this.#hints.sweepSoon();
    return reclaimed;
  }

  async backlog(request: { readonly totalsOnly: boolean } | undefined): Promise<OutboxBacklog> {
    const { backlog, backlogTotals } = this.#sql;
    return backlogOf(await this.#pool.run(request?.totalsOnly ? backlogTotals : backlog, [this.#lowWater.bound()]));
  }

  #trials(scope: ClaimScope | undefined): ClaimTrials {
    const { dueBehind } = scope === undefined ? this.#sql : this.#sql[scope.which];
    const more = scope === undefined ? [] : [scope.destinations];
    let after = "0";
    return {
      page: async () => {
        const rows = await this.#pool.run(dueBehind, [after, TRIAL_ROWS, ...more]);
        after = (rows.at(-1)?.sequence as string | undefined) ?? after;
        return idsOf(rows);
      },
      attempt: (ids) => this.#pool.takenBack(this.#sql.trial, [ids]),
    };
  }

  async #scanAll(choose: (sql: ClaimStatements) => Statement, request: ClaimRequest, from: string): Promise<Scan> {
    const leftOut = this.#leftOut.ids();
    const scan =
      leftOut.length === 0
        ? await this.#scan(choose(this.#sql), request, from, [])
        : await this.#scan(choose(this.#sql.withoutSome), request, from, [leftOut]);
    this.#idle = scan.firstPosition === undefined;
    return scan;
  }

  /** @param more the statement's parameters from $9 on */
  async #scan(statement: Statement, request: ClaimRequest, from: string, more: readonly unknown[]): Promise<Scan> {
    const [counts, ...rows] = await this.#pool.run(statement, [
      from,
      request.limit,
      request.maxBytes,
      request.token,
      request.leaseMs,
      request.claimTimeoutMs,
      this.#lowWater.bound(),
      request.heldTokens,
      ...more,
    ]);
    if (counts?.has_gone_back === true) this.#hints.marks.forget();
    const candidates = Number(counts?.candidates ?? 0);
    const firstCandidate = counts?.first_candidate;
    const last = rows.at(-1)?.sequence;
    if (typeof last === "string") this.#hints.marks.meet(last);
    return {
      rows: rows.map((row) => claimedRow(row, request.token)),
      more: counts?.more === true,
      heldBack: candidates - Number(counts?.free ?? 0),
      lookedAt: candidates,
      firstPosition: typeof firstCandidate === "string" ? firstCandidate : undefined,
      seen: typeof counts?.seen === "string" ? counts.seen : undefined,
    };
  }

  /** @returns the ids of the rows whose claim was closed */
  async #settleAll(
    settlements: readonly Outcome[],
    onRefused: (settlement: Outcome, reason: string) => void,
  ): Promise<readonly MessageId[]> {
    try {
      return await this.#settleBy(this.#sql.settle, settlements);
    } catch (error) {
      if (!isLockTimeout(error)) throw error;
      const closed = await this.#settleBy(this.#sql.settleFree, settlements);
      const left = settlements.filter(({ id }) => !closed.includes(id));
      const held = idsOf(await this.#pool.run(this.#sql.underClaim, namesOf(left)));
      for (const settlement of left) {
        if (held.includes(settlement.id)) onRefused(settlement, "another transaction holds the row");
      }
      return closed;
    }
  }

  async #settleBy(statement: Statement, settlements: readonly Outcome[]): Promise<readonly MessageId[]> {
    const [row] = await this.#pool.run(statement, [
      ...namesOf(settlements),
      ...(settlements.every(({ kind }) => kind === "sent") ? ALL_SENT : outcomeColumns(settlements)),
    ]);
    // No list of ids means that all were closed, or none.
    if (row?.closed) return row.closed as MessageId[];
    return row?.count === "0" ? [] : settlements.map(({ id }) => id);
  }
}

type ClaimStatements = Pick<OutboxStatements, keyof OutboxStatements["withoutSome"]>;

const NOTHING: ClaimResult = { rows: [], more: false, heldBack: 0 };

function namesOf(settlements: readonly Outcome[]): readonly unknown[] {
  return [uuidArray(settlements.map(({ id }) => id)), uuidArray(settlements.map(({ claimToken }) => claimToken))];
}

const ALL_SENT: readonly unknown[] = [[], [], [], []];

function outcomeColumns(settlements: readonly Outcome[]): readonly unknown[] {
  return [
    settlements.map((settlement) => STATE_AFTER[settlement.kind]),
    settlements.map(attemptsOf),
    settlements.map(delayOf),
    settlements.map((settlement) => ("reason" in settlement ? settlement.reason : null)),
  ];
}

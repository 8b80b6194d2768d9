import { isRefused, type StoreError } from "../../../model/errors.ts";
import type { ClaimToken, MessageId, Outcome } from "../../../model/rows.ts";
import type { SettledRows } from "../../../ports/store.ts";
import { entriesOf, type SqlHistory, type WithHistory } from "./history.ts";
import type { ClaimStatements } from "./outboxClaims.ts";
import { RefusalCheck } from "./refusalCheck.ts";
import { idsOf, type StatementRunner, tryInParts } from "./rows.ts";

type Statements<S> = Pick<ClaimStatements<S>, "settle" | "settleUnlocked" | "setBack" | "trial" | "dialect">;

export class Settlements<S> {
  readonly #runner: StatementRunner<S>;
  readonly #sql: Statements<S>;
  readonly #history: SqlHistory<S>;
  readonly #refusals = new RefusalCheck();

  constructor(runner: StatementRunner<S>, sql: Statements<S>, history: SqlHistory<S>) {
    this.#runner = runner;
    this.#sql = sql;
    this.#history = history;
  }

  /** @throws StoreError while the table refuses every outcome */
  async check(): Promise<void> {
    await this.#refusals.check();
  }

  /** If the database refuses a row, settles the others; see {@link RefusalCheck}, and {@link insteadOf} for that one. */
  async settle(outcomes: readonly Outcome[]): Promise<SettledRows> {
    try {
      const closed = await this.#close(this.#sql.settle, outcomes);
      this.#refusals.passed();
      return { closed, refused: new Map() };
    } catch (error) {
      if (!isRefused(error) && !this.#sql.dialect.hasGivenUp(error)) throw error;
      return await this.#settleApart(outcomes);
    }
  }

  /** Runs the plain statement if no outcome has an entry, as mostly. @returns the rows whose claims were closed */
  async #close(statements: WithHistory<S>, outcomes: readonly Outcome[]): Promise<ReadonlySet<MessageId>> {
    const { dialect } = this.#sql;
    const entries = entriesOf(outcomes);
    const values = dialect.settleValues(outcomes);
    const noting = entries.length === 0 ? values : { ...values, ...dialect.entryValues(entries) };
    const run = (statement: S) => this.#runner.run(statement, noting);
    if (entries.length === 0) return new Set(dialect.closedOf(await run(statements.plain), outcomes));
    // A statement that skips locked rows has waited for the history.
    const mayWaitForRow = statements !== this.#sql.settleUnlocked;
    return new Set(dialect.closedOf(await this.#history.noting(statements, run, mayWaitForRow), outcomes));
  }

  /**
   * Writes the rows that nobody has locked, without refused ones, then gives what is left one try.
   *
   * @throws StoreError if locks are all that it met: the table may be locked
   */
  async #settleApart(outcomes: readonly Outcome[]): Promise<SettledRows> {
    const { settle, settleUnlocked, dialect } = this.#sql;
    const closed = new Set<MessageId>();
    const refused = new Map<MessageId, string>();
    const held = new Map<MessageId, unknown>();
    for (const statements of [settleUnlocked, settle]) {
      held.clear();
      const left = outcomes.filter(({ id }) => !closed.has(id) && !refused.has(id));
      const parts = tryInParts(left, async (part) => {
        try {
          return await this.#close(statements, part);
        } catch (error) {
          if (isRefused(error) || !dialect.hasGivenUp(error)) throw error;
          for (const { id } of part) held.set(id, error);
          return new Set<MessageId>();
        }
      });
      const judged = this.#refusals.of(parts, {
        proves: (written) => written.size > 0,
        accepted: (outcome) => this.acceptsAgain(outcome),
        again: async (outcome) => {
          const values = dialect.settleValues([outcome]);
          const rows = await this.#runner.runAndRollBack((run) => run(statements.plain, values));
          return dialect.closedOf(rows, [outcome]).length > 0;
        },
      });
      for await (const tried of judged) {
        if (!tried.isRefused) for (const id of tried.result) closed.add(id);
        else if (await this.#settleInstead(statements, tried.item, tried.error)) closed.add(tried.item.id);
        else refused.set(tried.item.id, tried.error.message);
      }
    }
    const [failure] = held.values();
    if (failure !== undefined && closed.size + refused.size === 0) throw failure;
    for (const id of held.keys()) refused.set(id, HELD);
    return { closed, refused };
  }

  /** @returns false for a row that refuses every outcome, or whose trigger is busy: it keeps its claim */
  async #settleInstead(statements: WithHistory<S>, outcome: Outcome, refusal: StoreError): Promise<boolean> {
    if (refusal.code === "busy") return false;
    for (const instead of insteadOf(outcome, refusal.message)) {
      try {
        if ((await this.#close(statements, [instead])).size > 0) return true;
      } catch (error) {
        if (!isRefused(error)) throw error;
      }
    }
    return false;
  }

  /** Claims the row that was sent last, and rolls that back. @param outcome of another row, for it to take too */
  async acceptsAgain(outcome?: Outcome): Promise<boolean> {
    return await this.#runner.runAndRollBack(async (run) => {
      const [id] = idsOf(await run(this.#sql.setBack));
      if (id === undefined) return false;
      await run(this.#sql.trial, { ids: [id], labelledIds: [], labels: [], routes: "" });
      if (outcome === undefined) return true;
      const own = { ...outcome, id, claimToken: id as string as ClaimToken };
      const plain = "reason" in own ? { ...own, reason: "" } : own;
      await run(this.#sql.settle.plain, this.#sql.dialect.settleValues([plain]));
      return true;
    });
  }
}

const HELD = "another transaction locks the row";

/**
 * The outcome without its reason, which may have characters that the database lacks, then `dead`. Nothing for a
 * release: an unattempted row does not die of that.
 */
function insteadOf(outcome: Outcome, refusal: string): readonly Outcome[] {
  const { id, claimToken, kind, record } = outcome;
  if (kind === "release") return [];
  const reason = `${WHAT_HAPPENED[kind]}, but the database refuses to store that: ${refusal}`;
  const dead: Outcome = { id, claimToken, kind: "dead", attempted: false, reason, record };
  return "reason" in outcome ? [{ ...outcome, reason: "the reason cannot be stored" }, dead] : [dead];
}

const WHAT_HAPPENED = {
  sent: "delivered",
  retry: "failed with attempts left",
  park: "failed for good (onExhausted: park)",
  dead: "failed for good",
} as const;

const STATE_AFTER = {
  sent: "sent",
  retry: "pending",
  park: "pending",
  dead: "dead",
  release: "pending",
} as const;

const PARKED_DELAY = -1;

export function storedOutcome(outcome: Outcome) {
  const { kind } = outcome;
  const givenBackAfter = kind === "park" ? PARKED_DELAY : null;
  return {
    state: STATE_AFTER[kind],
    /** The failed attempts that it adds. */
    attempts: kind === "retry" || kind === "park" || (kind === "dead" && outcome.attempted) ? 1 : 0,
    /** After how many ms the row is due again; below 0 to park it, null if its time stays. */
    delay: kind === "retry" ? Math.round(outcome.delayMs) : givenBackAfter,
    reason: "reason" in outcome ? outcome.reason : null,
  };
}

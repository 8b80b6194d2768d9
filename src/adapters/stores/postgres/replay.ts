import type { MessageId } from "../../../model/rows.ts";
import type { FinishedRow, ReplayFilter, ReplayPage, ReplayScope, ReplayStore } from "../../../ports/finishedRows.ts";
import { changeAroundRefusal } from "../sql/refused.ts";
import { finishedRow } from "../sql/rows.ts";
import type { PostgresPool } from "./pool.ts";
import type { ReplayStatements } from "./replaySql.ts";

/** Replay on PostgreSQL: short statements that find their rows by index, so that a replay of any size disturbs nobody. */
export class PostgresReplay implements ReplayStore {
  readonly #pool: PostgresPool;
  readonly #sql: ReplayStatements;

  constructor(pool: PostgresPool, statements: ReplayStatements) {
    this.#pool = pool;
    this.#sql = statements;
  }

  async begin(): Promise<ReplayScope> {
    const [row] = await this.#pool.run(this.#sql.begin);
    return { finishedUntil: row?.finished_until as string, lastSequence: row?.last_sequence as string };
  }

  async page(scope: ReplayScope, filter: ReplayFilter, after: string | null, limit: number): Promise<ReplayPage> {
    const values = [...filterValues(scope, filter), after ?? "0", scope.lastSequence, limit];
    const rows = await this.#pool.run(this.#sql.page, values);
    const [first] = rows;
    return {
      rows: first === undefined || first.id === null ? [] : rows.map(finishedRow),
      next: first?.looked_at === limit ? (first.last as string) : null,
    };
  }

  async find(scope: ReplayScope, filter: ReplayFilter, ids: readonly MessageId[]): Promise<readonly FinishedRow[]> {
    const rows = await this.#pool.run(this.#sql.find, [...filterValues(scope, filter), ids]);
    return rows.map(finishedRow);
  }

  async move(scope: ReplayScope, ids: readonly MessageId[]): Promise<number> {
    let moved = 0;
    const refused = await changeAroundRefusal(ids, async (part) => {
      const [row] = await this.#pool.run(this.#sql.move, [scope.finishedUntil, part]);
      moved += Number(row?.moved ?? 0);
    });
    const [refusal] = refused.values();
    // Nothing could be moved: whoever asked has to be told why.
    if (refusal !== undefined && refused.size === ids.length) throw refusal;
    return moved;
  }

  async untried(ids: readonly MessageId[]): Promise<number> {
    const [row] = await this.#pool.run(this.#sql.untried, [ids]);
    return Number(row?.untried ?? 0);
  }
}

function filterValues(scope: ReplayScope, { state, topics, createdAfter, createdBefore }: ReplayFilter): unknown[] {
  return [scope.finishedUntil, topics ?? null, createdAfter ?? null, createdBefore ?? null, state ?? null];
}

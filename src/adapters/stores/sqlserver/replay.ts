import type { MessageId } from "../../../model/rows.ts";
import type { FinishedRow, ReplayFilter, ReplayPage, ReplayScope, ReplayStore } from "../../../ports/finishedRows.ts";
import { changeAroundRefusal } from "../sql/refused.ts";
import { finishedRow } from "../sql/rows.ts";
import type { SqlServerPool } from "./pool.ts";
import type { ReplayStatements } from "./replaySql.ts";
import type { Values } from "./statement.ts";
import { textBatch } from "./texts.ts";

/** Replay on SQL Server: short batches that find their rows by index, so that a replay of any size disturbs nobody. */
export class SqlServerReplay implements ReplayStore {
  readonly #pool: SqlServerPool;
  readonly #sql: ReplayStatements;

  constructor(pool: SqlServerPool, statements: ReplayStatements) {
    this.#pool = pool;
    this.#sql = statements;
  }

  async begin(): Promise<ReplayScope> {
    const [row] = await this.#pool.run(this.#sql.begin);
    return { finishedUntil: row?.finished_until as string, lastSequence: row?.last_sequence as string };
  }

  async page(scope: ReplayScope, filter: ReplayFilter, after: string | null, limit: number): Promise<ReplayPage> {
    const values = { ...filterValues(scope, filter), from: after ?? "0", last: scope.lastSequence, limit };
    const [walked = [], rows = []] = await this.#pool.runAll(this.#sql.page, values);
    const [look] = walked;
    return { rows: rows.map(finishedRow), next: look?.looked_at === limit ? (look.last as string) : null };
  }

  async find(scope: ReplayScope, filter: ReplayFilter, ids: readonly MessageId[]): Promise<readonly FinishedRow[]> {
    const rows = await this.#pool.run(this.#sql.find, { ...filterValues(scope, filter), ids: JSON.stringify(ids) });
    return rows.map(finishedRow);
  }

  async move(scope: ReplayScope, ids: readonly MessageId[]): Promise<number> {
    let moved = 0;
    const refused = await changeAroundRefusal(ids, async (part) => {
      const values = { finishedUntil: scope.finishedUntil, ids: JSON.stringify(part) };
      const [row] = await this.#pool.run(this.#sql.move, values);
      moved += Number(row?.moved ?? 0);
    });
    const [refusal] = refused.values();
    // Nothing could be moved: whoever asked has to be told why.
    if (refusal !== undefined && refused.size === ids.length) throw refusal;
    return moved;
  }

  async untried(ids: readonly MessageId[]): Promise<number> {
    const [row] = await this.#pool.run(this.#sql.untried, { ids: JSON.stringify(ids) });
    return Number(row?.untried ?? 0);
  }
}

function filterValues(scope: ReplayScope, { state, topics, createdAfter, createdBefore }: ReplayFilter): Values {
  const wanted = topics?.map((topic) => ({ topic }));
  return {
    finishedUntil: scope.finishedUntil,
    ...(wanted === undefined ? { rows: null, texts: null } : textBatch(wanted, ["topic"])),
    createdAfter: createdAfter ?? null,
    createdBefore: createdBefore ?? null,
    state: state ?? null,
  };
}

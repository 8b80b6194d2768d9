import type { MessageId } from "../../../model/rows.ts";
import type { ParkedFilter, ParkedRow, ParkedStore } from "../../../ports/parkedStore.ts";
import { changeParked, discardParked } from "../sql/parked.ts";
import { parkedRow } from "../sql/rows.ts";
import type { ParkedStatements } from "./parkedSql.ts";
import type { SqlServerPool } from "./pool.ts";

/** Parked rows on SQL Server. */
export class SqlServerParked implements ParkedStore {
  readonly #pool: SqlServerPool;
  readonly #sql: ParkedStatements;

  constructor(pool: SqlServerPool, statements: ParkedStatements) {
    this.#pool = pool;
    this.#sql = statements;
  }

  async list({ ids, key }: ParkedFilter, after: string | null, limit: number): Promise<readonly ParkedRow[]> {
    const named = ids === undefined ? null : JSON.stringify(ids);
    const rows = await this.#pool.run(this.#sql.list, { from: after ?? "0", limit, ids: named, key: key ?? null });
    return rows.map(parkedRow);
  }

  async retry(ids: readonly MessageId[]): Promise<number> {
    return await changeParked(ids, async (part) => {
      const [row] = await this.#pool.run(this.#sql.retry, { ids: JSON.stringify(part) });
      return Number(row?.changed ?? 0);
    });
  }

  async discard(ids: readonly MessageId[], note: string): Promise<number> {
    return await discardParked(ids, note, async (part, before, whole) => {
      const [row] = await this.#pool.run(this.#sql.discard, { ids: JSON.stringify(part), before, whole });
      return Number(row?.changed ?? 0);
    });
  }
}

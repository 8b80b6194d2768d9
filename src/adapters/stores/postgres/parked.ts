import type { MessageId } from "../../../model/rows.ts";
import type { ParkedFilter, ParkedRow, ParkedStore } from "../../../ports/parkedStore.ts";
import { changeParked, discardParked } from "../sql/parked.ts";
import { parkedRow } from "../sql/rows.ts";
import type { ParkedStatements } from "./parkedSql.ts";
import type { PostgresPool } from "./pool.ts";

/** Parked rows on PostgreSQL. */
export class PostgresParked implements ParkedStore {
  readonly #pool: PostgresPool;
  readonly #sql: ParkedStatements;

  constructor(pool: PostgresPool, statements: ParkedStatements) {
    this.#pool = pool;
    this.#sql = statements;
  }

  async list({ ids, key }: ParkedFilter, after: string | null, limit: number): Promise<readonly ParkedRow[]> {
    const rows = await this.#pool.run(this.#sql.list, [after ?? "0", limit, ids ?? null, key ?? null]);
    return rows.map(parkedRow);
  }

  async retry(ids: readonly MessageId[]): Promise<number> {
    return await changeParked(ids, async (part) => {
      const [row] = await this.#pool.run(this.#sql.retry, [part]);
      return Number(row?.changed ?? 0);
    });
  }

  async discard(ids: readonly MessageId[], note: string): Promise<number> {
    return await discardParked(ids, note, async (part, before, whole) => {
      const [row] = await this.#pool.run(this.#sql.discard, [part, before, whole]);
      return Number(row?.changed ?? 0);
    });
  }
}

import { withoutTable } from "../../../model/errors.ts";
import type { CellIdentity, SchemaStore } from "../../../ports/store.ts";
import { type Named, numberOf, type StatementRunner } from "./rows.ts";

/** `read` answers `position`, `name` and `cells`; `unfinished` answers `found`. */
export type CellStatements<S> = Named<S, "read" | "add" | "unfinished">;

/** What a SQL database knows of itself as a cell. */
export function cellOfDatabase<S>(
  runner: StatementRunner<S>,
  sql: CellStatements<S>,
): Pick<SchemaStore, "cell" | "hasUnfinished"> {
  const read = async (): Promise<CellIdentity | undefined> => {
    const [row] = await runner.run(sql.read);
    return row && { position: numberOf(row.position, 0), name: String(row.name), cells: numberOf(row.cells, 0) };
  };
  return {
    async cell(own) {
      if (own === undefined) return await read().catch(withoutTable);
      const stored = await read();
      if (stored !== undefined) return stored;
      await runner.run(sql.add, { ...own });
      return await read();
    },

    async hasUnfinished() {
      const [row] = (await runner.run(sql.unfinished).catch(withoutTable)) ?? [];
      return row?.found === true || row?.found === 1;
    },
  };
}

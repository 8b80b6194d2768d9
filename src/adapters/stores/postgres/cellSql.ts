import type { CellStatements } from "../sql/cell.ts";
import type { TableNames } from "../sql/names.ts";
import { byIndex, type Statement } from "./statement.ts";

/** The statements on what a database knows of itself as a cell. @param names already quoted */
export function cellStatements(names: TableNames): CellStatements<Statement> {
  const { inboxTable: inbox, outboxTable: outbox, inbox: i, outbox: o } = names;
  const { cell } = names.operations;
  const waits = (consumption: string) =>
    `EXISTS (SELECT FROM ${inbox} i WHERE i.${i.state} = 'pending' AND i.${i.consumption} = '${consumption}')`;
  const options = { timeoutMs: 5000 };
  return {
    read: byIndex("cell.read", options)`SELECT c.position, c.name, c.cells FROM ${cell} c WHERE c.id = 1`,
    add: byIndex("cell.add(position, name, cells)", options)`
INSERT INTO ${cell} (id, position, name, cells) VALUES (1, $1::int, $2, $3::int) ON CONFLICT (id) DO NOTHING`,
    unfinished: byIndex("cell.unfinished rows", options)`
SELECT ${waits("push")} OR ${waits("pull")}
  OR EXISTS (SELECT FROM ${outbox} o WHERE o.${o.state} = 'pending')
  OR EXISTS (SELECT FROM ${outbox} o WHERE o.${o.state} = 'processing') AS found`,
  };
}

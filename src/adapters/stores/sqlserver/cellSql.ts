import type { CellStatements } from "../sql/cell.ts";
import type { TableNames } from "../sql/names.ts";
import { BATCH } from "./fragments.ts";
import { type Statement, statement } from "./statement.ts";

/** The statements on what a database knows of itself as a cell. @param names already quoted */
export function cellStatements(names: TableNames): CellStatements<Statement> {
  const { inboxTable: inbox, outboxTable: outbox, inbox: i, outbox: o } = names;
  const { cell } = names.operations;
  const options = { timeoutMs: 5000 };
  return {
    read: statement("cell.read", options)`SELECT c.position, c.name, c.cells FROM ${cell} c WHERE c.id = 1;`,
    // Of two processes that start at once, the second waits for the lock of the first, and adds nothing.
    add: statement("cell.add(position int, name text, cells int)", options)`${BATCH}
INSERT INTO ${cell} (id, position, name, cells)
SELECT 1, @position, @name, @cells
WHERE NOT EXISTS (SELECT 1 FROM ${cell} c WITH (UPDLOCK, HOLDLOCK) WHERE c.id = 1);`,
    unfinished: statement("cell.unfinished rows", options)`
SELECT CASE WHEN EXISTS (SELECT 1 FROM ${inbox} i WHERE i.${i.state} = N'pending')
  OR EXISTS (SELECT 1 FROM ${outbox} o WHERE o.${o.state} = N'pending')
  OR EXISTS (SELECT 1 FROM ${outbox} o WHERE o.${o.state} = N'processing') THEN 1 ELSE 0 END AS found;`,
  };
}

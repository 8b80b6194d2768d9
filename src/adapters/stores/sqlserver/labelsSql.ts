import type { TableNames } from "../sql/names.ts";
import type { LabelStatements } from "../sql/outbox.ts";
import { BATCH, BY_ID, COLLATED, TO_READ } from "./fragments.ts";
import { type Statement, statement } from "./statement.ts";

/** The statements on the labels of waiting rows; undefined for a table without the columns. */
export function labelStatements({ outboxTable, outbox: c }: TableNames): LabelStatements<Statement> | undefined {
  const { destination, routes } = c;
  if (destination === null || routes === null) return undefined;
  const isStale = (hash: string): string =>
    `${hash} ${COLLATED} NOT IN (SELECT k.hash FROM OPENJSON(@keep) WITH (hash nvarchar(16) ${COLLATED} '$') k)`;
  const next = (from: string): string => `SET @name = (SELECT TOP (1) o.${destination} FROM ${outboxTable} o ${TO_READ}
  WHERE o.${c.state} = N'pending' AND o.${destination} > ${from} ORDER BY o.${destination}, o.${c.sequence});`;
  return {
    /** As on PostgreSQL. The numbers of a page keep the order in which an owner's collation has the names. */
    relabel: statement(
      "outbox.relabel(keep list, fromDestination text, fromSequence bigint, isFirst int, limit int)",
    )`${BATCH}
DECLARE @page TABLE (n int NOT NULL IDENTITY (1, 1), id uniqueidentifier NOT NULL, label nvarchar(400) ${COLLATED} NOT NULL,
  sequence bigint NOT NULL, hash nvarchar(16) ${COLLATED} NULL);
DECLARE @stale TABLE (sequence bigint NOT NULL, id uniqueidentifier NOT NULL);
INSERT INTO @page (id, label, sequence, hash)
SELECT TOP (@limit) o.${c.id}, o.${destination}, o.${c.sequence}, o.${routes} FROM ${outboxTable} o ${TO_READ}
WHERE o.${c.state} = N'pending' AND o.${destination} >= @fromDestination
  AND (o.${destination} > @fromDestination OR o.${c.sequence} > @fromSequence)
ORDER BY o.${destination}, o.${c.sequence};
INSERT INTO @stale (sequence, id)
SELECT p.sequence, p.id FROM @page p WHERE ${isStale("p.hash")}
UNION ALL
SELECT o.${c.sequence}, o.${c.id} FROM ${outboxTable} o ${TO_READ}
WHERE @isFirst = 1 AND o.${c.state} = N'processing' AND ${isStale(`o.${routes}`)};
UPDATE o
SET ${destination} = NULL, ${routes} = NULL
FROM ${outboxTable} o ${BY_ID.take} JOIN @stale s ON o.${c.sequence} = s.sequence AND o.${c.id} = s.id
WHERE o.${c.state} IN (N'pending', N'processing') AND ${isStale(`o.${routes}`)};
SELECT (SELECT COUNT(*) FROM @page) AS looked_at, (SELECT COUNT(*) FROM @stale) AS found,
  (SELECT TOP (1) p.label FROM @page p ORDER BY p.n DESC) AS last_destination,
  CONVERT(nvarchar(20), (SELECT TOP (1) p.sequence FROM @page p ORDER BY p.n DESC)) AS last_sequence;`,

    waiting: statement("outbox.destinations waiting(limit int)")`${BATCH}
DECLARE @name nvarchar(400);
DECLARE @names TABLE (n int NOT NULL IDENTITY (1, 1), name nvarchar(400) ${COLLATED} NOT NULL);
${next("N''")}
WHILE @name IS NOT NULL AND @limit > 0
BEGIN
  INSERT INTO @names (name) VALUES (@name);
  SET @limit = @limit - 1;
  ${next("@name")}
END;
SELECT n.name FROM @names n ORDER BY n.n;`,
  };
}

import type { NewJournalEntry } from "../../../ports/journalStore.ts";
import { COUNTERS } from "../../../ports/operationsStore.ts";
import { JOURNAL_TIMEOUT_MS, type JournalStatements } from "../sql/journal.ts";
import type { TableNames } from "../sql/names.ts";
import type { CellStatements, OperationsStatements } from "../sql/operations.ts";
import type { Values } from "../sql/rows.ts";
import {
  BATCH,
  BEGIN,
  BY_ID,
  COLLATED,
  COMMIT,
  listsOf,
  MAX_BIGINT,
  NOW,
  ONE_BY_ONE,
  PARKED_AT,
  placeFrom,
  placeNames,
  placeTypes,
  routedColumns,
  TO_READ,
  textBatch,
  textOf,
} from "./fragments.ts";
import { type Statement, statement } from "./statement.ts";

/** Rows of other processes that are too old are deleted, unless another session has locked them. */
export function operationsStatements(names: TableNames): OperationsStatements<Statement> {
  const { process, figures, audit } = names.operations;
  const [inbox, outbox, i, o] = [names.inboxTable, names.outboxTable, names.inbox, names.outbox];
  const each = (write: (counter: string) => string): string => COUNTERS.map(write).join(", ");
  const options = { timeoutMs: TIMEOUT_MS };
  const minute = (time: string): string =>
    `DATEADD(second, -DATEPART(second, ${time}), CONVERT(datetimeoffset(0), CONVERT(nvarchar(19), ${time}, 126) + N'+00:00', 127))`;
  const OLD = "WITH (READPAST, ROWLOCK, UPDLOCK)";
  const { ofMessage, placed, inOrder } = listsOf(names);
  const behind = inOrder("b", ">", "b.[key]", "b.destination").map(
    ({ where, place }) => `SELECT ${place} AS place FROM ${outbox} o ${TO_READ} WHERE ${where}`,
  );
  const blocked = (which: string): string => `SELECT t.* FROM (
  SELECT TOP (@limit) o.${o.id} AS id, ${placed("o")}, o.${o.key} AS [key], o.${o.topic} AS topic, ${routedColumns(o, "o")}, o.${o.attempt} AS attempt,
    o.${o.scheduledAt} AS scheduled_at, LEFT(o.${o.lastError}, 300) AS last_error
  FROM ${outbox} o ${TO_READ}
  WHERE o.${o.state} = N'pending' AND o.${o.attempt} > 0 AND o.${o.key} IS NOT NULL AND ${which} ORDER BY o.${o.scheduledAt}) t`;

  return {
    // Counts last: after a fault of what comes before, the same counts come again.
    beat: statement(
      "operations.beat(name text, version text, roles text, upMs bigint, figures longText)",
      options,
    )`${BATCH}
${NOW}
DECLARE @counted TABLE (minute datetimeoffset(0) NOT NULL, kind nvarchar(20) ${COLLATED} NOT NULL,
  name nvarchar(400) ${COLLATED} NOT NULL, ${each((counter) => `${counter} bigint NOT NULL`)}, PRIMARY KEY (minute, kind, name));
INSERT INTO @counted (minute, kind, name, ${each((counter) => counter)})
SELECT DATEADD(minute, -c.ago, ${minute("@now")}), c.kind, c.name, ${each((counter) => `SUM(c.${counter})`)}
FROM OPENJSON(@figures) WITH (kind nvarchar(20) ${COLLATED} '$.kind', name nvarchar(400) ${COLLATED} '$.name', ago int '$.minutesAgo',
    ${each((counter) => `${counter} bigint '$.${counter}'`)}) c
GROUP BY c.ago, c.kind, c.name;
${BEGIN}
UPDATE p SET version = @version, roles = @roles, started_at = DATEADD(second, -@upMs / 1000, @now), seen_at = @now
FROM ${process} p WITH (UPDLOCK, HOLDLOCK, ROWLOCK) WHERE p.name = @name;
IF @@ROWCOUNT = 0
  INSERT INTO ${process} (name, version, roles, started_at, seen_at) VALUES (@name, @version, @roles, DATEADD(second, -@upMs / 1000, @now), @now);
${COMMIT}
DELETE p FROM ${process} p ${OLD} WHERE p.seen_at < DATEADD(hour, -1, @now) AND p.name <> @name;
DELETE TOP (${MOST_DELETED}) f FROM ${figures} f ${OLD} WHERE f.minute < DATEADD(day, -1, @now);
DELETE e FROM ${audit} e ${OLD} WHERE e.id IN (SELECT TOP (${MOST_DELETED}) b.id FROM ${audit} b ORDER BY b.id) AND e.at < DATEADD(day, -90, @now);
${BEGIN}
MERGE INTO ${figures} WITH (HOLDLOCK) AS f USING @counted AS c ON f.minute = c.minute AND f.kind = c.kind AND f.name = c.name
WHEN MATCHED THEN UPDATE SET ${each((counter) => `${counter} = f.${counter} + c.${counter}`)}
WHEN NOT MATCHED THEN INSERT (minute, kind, name, ${each((counter) => counter)}) VALUES (c.minute, c.kind, c.name, ${each((counter) => `c.${counter}`)});
${COMMIT}
SELECT ${["poller", "relay"].map((role) => `COUNT(CASE WHEN N' ' + p.roles + N' ' LIKE N'% ${role} %' THEN 1 END) AS ${role}s`).join(", ")}, STRING_AGG(CONVERT(nvarchar(max), p.roles), N',') AS all_roles, @now AS at
FROM ${process} p WHERE p.seen_at > DATEADD(minute, -1, @now) AND p.name <> @name;`,

    leave: statement("operations.leave(name text)", options)`DELETE FROM ${process} WHERE name = @name;`,

    processes: statement("operations.processes", options)`${NOW}
SELECT p.name, p.version, p.roles, p.started_at, p.seen_at FROM ${process} p WHERE p.seen_at > DATEADD(minute, -1, @now) ORDER BY p.name;`,

    figures: statement("operations.figures(minutes int)", options)`${NOW}
SELECT f.minute, f.kind, f.name, ${each((counter) => `f.${counter}`)}
FROM ${figures} f WHERE f.minute >= DATEADD(minute, -@minutes, ${minute("@now")}) ORDER BY f.minute, f.kind, f.name;`,

    addAudit: statement(
      "operations.add to the audit log(actor text, action text, target text, detail longText)",
      options,
    )`
INSERT INTO ${audit} (actor, action, target, detail) VALUES (@actor, @action, @target, @detail);`,

    audit: statement("operations.audit log(before bigint, limit int)", options)`
SELECT TOP (@limit) CONVERT(nvarchar(20), e.id) AS id, e.at, e.actor, e.action, e.target, e.detail
FROM ${audit} e WHERE e.id < COALESCE(@before, ${MAX_BIGINT}) ORDER BY e.id DESC;`,

    deadRows: statement("operations.dead rows(limit int)", options)`
SELECT TOP (@limit) o.${o.id} AS id, o.${o.topic} AS topic, ${routedColumns(o, "o")}, o.${o.updatedAt} AS updated_at, LEFT(o.${o.lastError}, 300) AS last_error
FROM ${outbox} o ${TO_READ} WHERE o.${o.state} = N'dead' ORDER BY o.${o.updatedAt} DESC, o.${o.sequence} DESC;`,

    partlyDead: statement("operations.messages of dead deliveries(limit int)", options)`
SELECT DISTINCT d.id, d.expanded_to FROM (
  SELECT TOP (@limit) ${ofMessage(o.id)} AS id, ${ofMessage(o.expandedTo)} AS expanded_to
  FROM ${outbox} o ${TO_READ} WHERE o.${o.state} = N'dead' ORDER BY o.${o.updatedAt} DESC, o.${o.sequence} DESC) d
WHERE d.expanded_to IS NOT NULL;`,
    sent: statement("operations.sent rows(ids list)", options)`
SELECT o.${o.id} AS id FROM OPENJSON(@ids) WITH (id uniqueidentifier '$') n JOIN ${outbox} o ${BY_ID.look} ON o.${o.id} = n.id AND o.${o.state} = N'sent'
${ONE_BY_ONE};`,

    blockedKeys: statement("operations.blocked keys(limit int, behindLimit int)", options)`${NOW}
SELECT b.id, b.[key], b.topic, b.destination, b.routes, b.attempt, CASE WHEN b.scheduled_at = ${PARKED_AT} THEN 1 ELSE 0 END AS is_parked, b.scheduled_at, b.last_error,
  (SELECT COUNT(*) FROM (SELECT TOP (@behindLimit) u.place FROM (${behind.join(" UNION ALL ")}) u) behind) AS rows_behind
FROM (${blocked(`o.${o.scheduledAt} > @now AND o.${o.scheduledAt} < ${PARKED_AT}`)} UNION ALL ${blocked(`o.${o.scheduledAt} = ${PARKED_AT}`)}) b;`,

    inboxBacklog: statement("operations.inbox backlog(pullSources list, limit int)", options)`${NOW}
SELECT p.source, COUNT(*) AS pending, DATEDIFF_BIG(millisecond, MIN(p.created_at), @now) AS age_ms
FROM (SELECT t.* FROM (SELECT TOP (@limit) i.${i.source} AS source, i.${i.createdAt} AS created_at FROM ${inbox} i ${TO_READ}
    WHERE i.${i.state} = N'pending' AND i.${i.consumption} = N'push' ORDER BY i.${i.scheduledAt}, i.${i.createdAt}, i.${i.id}) t
  UNION ALL SELECT l.* FROM OPENJSON(@pullSources) WITH (name nvarchar(400) ${COLLATED} '$') s CROSS APPLY (
    SELECT TOP (@limit) i.${i.source} AS source, i.${i.createdAt} AS created_at FROM ${inbox} i ${TO_READ}
    WHERE i.${i.state} = N'pending' AND i.${i.consumption} = N'pull' AND i.${i.source} = s.name ${COLLATED} ORDER BY i.${i.createdAt}, i.${i.id}) l
) p
GROUP BY p.source;`,
  };
}

const TIMEOUT_MS = 5000;
/** Of one beat. */
const MOST_DELETED = 1000;

/** @param names already quoted */
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

export function journalStatements(names: TableNames): JournalStatements<Statement> {
  const table = names.operations.journal;
  const { inboxTable: inbox, inbox: i, journal: c } = names;
  const timeoutMs = JOURNAL_TIMEOUT_MS;
  const columns = [c.at, c.source, c.outcome, c.idempotencyKey, c.correlationId, c.messageId, c.replica].join(", ");
  const newest = (declaration: string, condition: string): Statement =>
    statement(declaration, { timeoutMs })`
SELECT TOP (@limit) j.${c.at} AS at, j.${c.source} AS source, j.${c.outcome} AS outcome, j.${c.idempotencyKey} AS idempotency_key,
  j.${c.correlationId} AS correlation_id, j.${c.messageId} AS message_id, j.${c.replica} AS replica
FROM ${table} j WHERE ${condition} ORDER BY j.${c.id} DESC;`;
  return {
    // A duplicate's key is in the inbox: its first message is found by the index of the keys.
    add: statement("journal.add(rows longText, texts bytes)", { timeoutMs })`
${BATCH}
${NOW}
DECLARE @new TABLE (turn int NOT NULL PRIMARY KEY, age int NOT NULL, outcome nvarchar(20) ${COLLATED} NOT NULL, replica nvarchar(400) ${COLLATED} NOT NULL,
  ${TEXTS.map((column) => placeTypes(column)).join(", ")});
INSERT INTO @new (turn, age, outcome, replica, ${TEXTS.map((column) => placeNames(column)).join(", ")})
SELECT n.* FROM OPENJSON(@rows) WITH (turn int '$.turn', age int '$.age', outcome nvarchar(20) ${COLLATED} '$.outcome', replica nvarchar(400) ${COLLATED} '$.replica',
  ${TEXTS.map((column) => placeFrom(column)).join(", ")}) n;
INSERT INTO ${table} (${columns})
SELECT DATEADD(millisecond, -r.age, @now), ${textOf("source", "nvarchar(4000)")}, r.outcome, ${textOf("idempotencyKey", "nvarchar(4000)")},
  ${textOf("correlationId", "nvarchar(4000)")},
  CASE WHEN r.outcome = N'duplicate' THEN (
    SELECT TOP (1) i.${i.id} FROM ${inbox} i
    WHERE i.${i.source} = ${textOf("source", "nvarchar(4000)")} AND i.${i.idempotencyKey} = ${textOf("idempotencyKey", "nvarchar(4000)")}) END,
  r.replica
FROM @new r
ORDER BY r.turn;`,

    deleteOld: statement("journal.delete old(limit int)", { timeoutMs })`
${BATCH}
${NOW}
DELETE j
FROM ${table} j
WHERE j.${c.id} IN (SELECT TOP (@limit) p.${c.id} FROM ${table} p ORDER BY p.${c.id}) AND j.${c.at} < DATEADD(hour, -24, @now);
SELECT @@ROWCOUNT AS deleted;`,

    duplicatesOf: newest("journal.duplicates of a message(id uuid, limit int)", `j.${c.messageId} = @id`),
    byIdempotencyKey: newest(
      "journal.by idempotency key(text text, outcome text, limit int)",
      `j.${c.idempotencyKey} = @text AND j.${c.outcome} = @outcome`,
    ),
    byCorrelationId: newest(
      "journal.by correlation id(text text, outcome text, limit int)",
      `j.${c.correlationId} = @text AND j.${c.outcome} = @outcome`,
    ),

    dialect: { entryValues },
  };
}

const TEXTS = ["source", "idempotencyKey", "correlationId"] as const;

function entryValues(entries: readonly NewJournalEntry[]): Values {
  const rows = entries.map(({ ageMs, outcome, replica, source, idempotencyKey, correlationId }, turn) => ({
    turn,
    age: Math.round(ageMs),
    outcome,
    replica,
    source,
    idempotencyKey,
    correlationId,
  }));
  return { ...textBatch(rows, TEXTS) };
}

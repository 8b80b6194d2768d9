import type { TableNames } from "../sql/names.ts";
import { BATCH, BY_ID, NAMED_IDS, NOW, ONE_BY_ONE, timeOf, timeText } from "./fragments.ts";
import type { Statement } from "./statement.ts";
import { PAIRED, placeFrom, textOf } from "./texts.ts";

/** Every statement of a replay, with the configured names woven in once. */
export function replayStatements(names: TableNames) {
  const table = names.outboxTable;
  const c = names.outbox;
  const finished = `o.${c.state} IN (N'sent', N'dead')`;
  const columns = `o.${c.id} AS id, CONVERT(nvarchar(20), o.${c.sequence}) AS sequence, o.${c.topic} AS topic, o.${c.key} AS [key],
  o.${c.state} AS state, o.${c.attempt} AS attempt, o.${c.createdAt} AS created_at, LEFT(o.${c.lastError}, 200) AS last_error`;

  const filterParameters = {
    finishedUntil: "text",
    rows: "longText",
    texts: "longText",
    createdAfter: "text",
    createdBefore: "text",
    state: "text",
  } as const;

  /** `@rows` and `@texts` hold the topics; what is not asked is null. */
  const filter = `DECLARE @until datetimeoffset(7) = ${timeOf("@finishedUntil")};
DECLARE @after datetimeoffset(7) = ${timeOf("@createdAfter")};
DECLARE @before datetimeoffset(7) = ${timeOf("@createdBefore")};
${PAIRED}
DECLARE @wanted TABLE (topic nvarchar(max));
INSERT INTO @wanted (topic) SELECT ${textOf("topic")} FROM OPENJSON(@rows) WITH (${placeFrom("topic")}) r;`;

  /** Topics are compared letter for letter, whatever the column's collation; spaces at the end count only before something else. */
  const matches = `o.${c.updatedAt} <= @until
  AND (@rows IS NULL OR EXISTS (
    SELECT * FROM @wanted w WHERE CONCAT(w.topic, N'.') = CONCAT(o.${c.topic}, N'.') COLLATE Latin1_General_100_BIN2))
  AND (@after IS NULL OR o.${c.createdAt} > @after)
  AND (@before IS NULL OR o.${c.createdAt} < @before)
  AND (@state IS NULL OR o.${c.state} = @state)`;

  return {
    begin: {
      name: "replay.begin",
      parameters: {},
      text: `${NOW}
SELECT ${timeText("@now")} AS finished_until, CONVERT(nvarchar(20), COALESCE(MAX(o.${c.sequence}), 0)) AS last_sequence
FROM ${table} o WHERE ${finished};`,
    },

    /**
     * Rows after the sequence `@from` up to `@last`. The limit bounds the rows looked at, not those that match. Answers with how many were
     * looked at and the sequence of the last of them, and with those that match.
     */
    page: {
      name: "replay.page",
      parameters: { ...filterParameters, from: "bigint", last: "bigint", limit: "int" },
      text: `${BATCH}
${filter}
DECLARE @walked TABLE (sequence bigint, id uniqueidentifier, PRIMARY KEY (sequence, id));
INSERT INTO @walked (sequence, id)
SELECT TOP (@limit) o.${c.sequence}, o.${c.id}
FROM ${table} o
WHERE ${finished} AND o.${c.sequence} > @from AND o.${c.sequence} <= @last
ORDER BY o.${c.sequence};
SELECT COUNT(*) AS looked_at, CONVERT(nvarchar(20), MAX(sequence)) AS last FROM @walked;
SELECT ${columns}
FROM @walked n JOIN ${table} o ${BY_ID.read} ON o.${c.id} = n.id
WHERE ${finished} AND ${matches}
ORDER BY n.sequence, n.id
${ONE_BY_ONE};`,
    },

    find: {
      name: "replay.find",
      parameters: { ...filterParameters, ids: "longText" },
      text: `${BATCH}
${filter}
${NAMED_IDS}
SELECT ${columns}
FROM @named n JOIN ${table} o ${BY_ID.read} ON o.${c.id} = n.id
WHERE ${finished} AND ${matches}
ORDER BY o.${c.sequence}
${ONE_BY_ONE};`,
    },

    /**
     * Every replay locks rows in the order of their ids, so that two replays of the same rows wait for each other instead of deadlocking;
     * the one that comes second finds the rows pending, or finished after its scope, and leaves them.
     *
     * Claims pass over the rows of a batch until it is committed. One that meets only the later rows, because the commit fell into its scan,
     * reads afterwards what lies before them, and leaves them.
     */
    move: {
      name: "replay.move",
      parameters: { finishedUntil: "text", ids: "longText" },
      text: `${BATCH}
${NOW}
DECLARE @until datetimeoffset(7) = ${timeOf("@finishedUntil")};
${NAMED_IDS}
UPDATE o
SET ${c.state} = N'pending', ${c.attempt} = 0, ${c.scheduledAt} = @now, ${c.updatedAt} = @now, ${c.lastError} = NULL,
  ${c.claimedAt} = NULL, ${c.claimToken} = NULL, ${c.leaseExpiresAt} = NULL
FROM @named n JOIN ${table} o ${BY_ID.change} ON o.${c.id} = n.id
WHERE ${finished} AND o.${c.updatedAt} <= @until
${ONE_BY_ONE};
SELECT @@ROWCOUNT AS moved;`,
    },

    untried: {
      name: "replay.untried",
      parameters: { ids: "longText" },
      text: `${BATCH}
${NAMED_IDS}
SELECT COUNT(*) AS untried
FROM @named n JOIN ${table} o ${BY_ID.read} ON o.${c.id} = n.id
WHERE o.${c.state} = N'pending' AND o.${c.attempt} = 0
${ONE_BY_ONE};`,
    },
  } as const satisfies Record<string, Statement>;
}

export type ReplayStatements = ReturnType<typeof replayStatements>;

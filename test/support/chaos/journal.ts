import { PARKED_UNTIL } from "../../../src/model/rows.ts";
import { LANE_SCHEMA } from "./lists.ts";

/**
 * The journal of the outbox: a trigger writes every change of a row's state into a table of the same database, in the same transaction, with
 * the name of the process that made it and the time by the machine's clock (`true_time()`). So what the replicas did to the rows is known from the database itself, whatever they say.
 */
export const JOURNAL_SCHEMA = `
${LANE_SCHEMA}
CREATE FUNCTION message_of(headers jsonb, place bigint) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT (CASE WHEN place IS NULL THEN headers ELSE (SELECT m.headers FROM outbox m WHERE m.sequence = place AND m.state IN ('sent', 'dead')) END)->>'x-idempotency-key'
$$;
CREATE TABLE row_journal (
  n bigint GENERATED ALWAYS AS IDENTITY,
  at timestamptz NOT NULL DEFAULT true_time(),
  replica text NOT NULL DEFAULT current_setting('application_name'),
  sequence bigint NOT NULL,
  key text,
  message text,
  row_id uuid,
  was text,
  was_attempt int,
  lease_left_ms float,
  state text NOT NULL,
  attempt int NOT NULL,
  was_parked boolean,
  claim uuid
);
CREATE FUNCTION note_outbox_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO row_journal (sequence, key, message, row_id, state, attempt, claim)
  SELECT coalesce(message_sequence, sequence), key || l.lane, message_of(headers, message_sequence) || l.lane, id, state, attempt, claim_token
  FROM inserted, lane(topic, message_sequence, destination) l(lane) ORDER BY sequence;
  RETURN NULL;
END $$;
CREATE FUNCTION note_outbox_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO row_journal (sequence, key, message, row_id, was, was_attempt, lease_left_ms, state, attempt, was_parked, claim)
  SELECT coalesce(NEW.message_sequence, NEW.sequence), NEW.key || l.lane, message_of(NEW.headers, NEW.message_sequence) || l.lane,
    NEW.id, OLD.state, OLD.attempt, extract(epoch FROM OLD.lease_expires_at - now()) * 1000, NEW.state, NEW.attempt,
    OLD.state = 'pending' AND OLD.attempt > 0 AND OLD.scheduled_at = '${PARKED_UNTIL}', NEW.claim_token
  FROM lane(NEW.topic, NEW.message_sequence, NEW.destination) l(lane);
  RETURN NULL;
END $$;
-- For each statement: with a trigger for each row receipts would leave their rows to the relay.
CREATE TRIGGER note_insert AFTER INSERT ON outbox REFERENCING NEW TABLE AS inserted
  FOR EACH STATEMENT EXECUTE FUNCTION note_outbox_insert();
-- Everything but a renewal, which moves no state; of a finished row, everything.
CREATE TRIGGER note_update AFTER UPDATE ON outbox FOR EACH ROW
  WHEN (OLD.state IN ('sent', 'dead') OR OLD.state <> NEW.state OR OLD.attempt <> NEW.attempt
    OR OLD.claim_token IS DISTINCT FROM NEW.claim_token)
  EXECUTE FUNCTION note_outbox_update();
`;

export type RowState = "pending" | "processing" | "sent" | "dead";

/** One change of one row. */
export interface JournalEntry {
  /** ms since the epoch. */
  readonly at: number;
  /** The process that made the change. */
  readonly replica: string;
  /** Of a delivery, that of its message. */
  readonly sequence: number;
  /** Id of the message and of the row. */
  readonly message: string | null;
  readonly rowId: string | null;
  /** Null for an insert. */
  readonly was: RowState | null;
  readonly wasAttempt: number | null;
  /** What was left of the lease before the change, by the database's clock; null without a lease. */
  readonly leaseLeftMs: number | null;
  readonly state: RowState;
  readonly attempt: number;
  /** It was parked before the change; null for an insert. */
  readonly wasParked: boolean | null;
  readonly claim: string | null;
}

type Query = <Row extends object>(sql: string, params?: readonly unknown[]) => Promise<Row[]>;

const ENTRY = `extract(epoch FROM at)::float * 1000 AS at, replica, sequence::int AS sequence, message, row_id AS "rowId", was,
  was_attempt AS "wasAttempt", lease_left_ms AS "leaseLeftMs", state, attempt, was_parked AS "wasParked", claim`;

/** Keys of messages: not those of poison, nor message rows, which are expanded and not delivered. */
const OF_MESSAGES = "key ~ '^(key|app)-' AND key NOT LIKE '%>'";

/** Gives what the journal says of the messages' keys since a time, in ms since the epoch. */
export function journalSince(query: Query, at: number): Promise<JournalEntry[]> {
  return query(
    `SELECT ${ENTRY} FROM row_journal WHERE at > to_timestamp($1::float / 1000) AND ${OF_MESSAGES} ORDER BY n`,
    [at],
  );
}

/** Gives the journal of one key of the messages after another, of keys with lists at each destination, each in the order in which the changes were made. */
export async function* journalByKey(query: Query): AsyncGenerator<{ key: string; entries: readonly JournalEntry[] }> {
  await query("CREATE INDEX IF NOT EXISTS row_journal_key_idx ON row_journal (key, n)");
  const keys = await query<{ key: string }>(`SELECT DISTINCT key FROM row_journal WHERE ${OF_MESSAGES} ORDER BY key`);
  for (const { key } of keys) {
    const entries = await query<JournalEntry>(`SELECT ${ENTRY} FROM row_journal WHERE key = $1 ORDER BY n`, [key]);
    yield { key, entries };
  }
}

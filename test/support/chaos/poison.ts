import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import { seeded } from "../random.ts";
import { between } from "./draw.ts";
import { UNWANTED_TOPIC } from "./operator.ts";
import type { Replica } from "./replica.ts";
import type { FaultName } from "./selection.ts";

/**
 * What the tables refuse, as an owner's triggers and constraints do, and a list of the rows that need not end well: a row with the fate `ends` has to be `sent`
 * or `dead` at the end, a row with the fate `any` may be in any state. None may delay another key, or be repeated with others.
 */
export const POISON_SCHEMA = `
CREATE TABLE poisoned (row_id uuid PRIMARY KEY, kind text NOT NULL, fate text NOT NULL);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the owner of this table refuses this row';
END $$;
CREATE TRIGGER refuse_sent BEFORE UPDATE ON outbox FOR EACH ROW
  WHEN (NEW.headers ? 'x-refuse-sent' AND NEW.state = 'sent') EXECUTE FUNCTION refuse();
CREATE TRIGGER refuse_outcome BEFORE UPDATE ON outbox FOR EACH ROW
  WHEN (NEW.headers ? 'x-refuse-outcome' AND OLD.state = 'processing') EXECUTE FUNCTION refuse();
ALTER TABLE outbox ADD CONSTRAINT owners_check CHECK (NOT (headers ? 'x-check-sent' AND state = 'sent'));
ALTER TABLE outbox ADD CONSTRAINT relay_check CHECK (coalesce(headers->>'x-idempotency-key', '') NOT LIKE 'p-refuse-relay-%');
ALTER TABLE inbox ADD CONSTRAINT owners_check CHECK (idempotency_key NOT LIKE 'p-refuse-receipt-%');
`;

/** What is no message of the history begins its id with this. */
export const POISON_PREFIX = "p-";
/** The receiver never takes what has this in its id. */
export const UNWANTED = "p-unwanted";

/** Columns of a row as SQL expressions; the others have what an ordinary row has. */
type PoisonedRow = Readonly<Record<string, string>>;

const CONTROL = "E'a\\x01\\x1b[31m\\u202Eb'";

/** Rows of an application that the table lets in. Each of them has to end: `sent`, or `dead` with a reason. */
const POISONED: Readonly<Record<string, PoisonedRow>> = {
  "highest attempt": { attempt: "2147483647" },
  "highest attempt, unwanted": { attempt: "2147483647", max_attempts: "2147483647", payload: unwanted() },
  "no attempts": { max_attempts: "0", payload: unwanted() },
  "fewer than no attempts": { max_attempts: "-5", payload: unwanted() },
  "no route": { topic: "'nobody.knows'" },
  "empty topic": { topic: "''" },
  "control characters in the topic": { topic: CONTROL },
  "long topic": { topic: "repeat('topic.', 20000)" },
  "empty key": { key: "''" },
  "control characters in the key": { key: CONTROL },
  "long key": { key: "repeat('k', 2000)" },
  "headers are a list": { headers: "'[1, 2]'" },
  "headers are null": { headers: "'null'" },
  "headers are a string": { headers: "'\"x\"'" },
  "header values of all kinds": { headers: `'{"a": {"b": [1]}, "c": 1.5, "d": null, "e": true, "": "x"}'` },
  "line breaks in a header": { headers: `jsonb_build_object('x-a', E'1\\r\\nx-b: 2')` },
  "line breaks in a header's name": { headers: `jsonb_build_object(E'x-a\\r\\nx-b', '2')` },
  "control characters in a header": { headers: `jsonb_build_object('x-idempotency-key', ${CONTROL})` },
  "headers of the connection": {
    headers: `'{"content-length": "3", "transfer-encoding": "chunked", "host": "elsewhere"}'`,
  },
  "many headers": { headers: "(SELECT jsonb_object_agg('x-' || n, n::text) FROM generate_series(1, 5000) n)" },
  "long header": { headers: "jsonb_build_object('x-long', repeat('x', 200000))" },
  "empty payload": { payload: "''" },
  "payload is not JSON": { payload: "'{\"id\": '" },
  "huge payload": { payload: `'{"id": "p-huge", "x": "' || repeat('x', 4000000) || '"}'` },
  "created at no time": { created_at: "'infinity'" },
  "created before all times": { created_at: "'-infinity'" },
  "created long ago": { created_at: "'4000-01-01 BC'" },
  "created in far future": { created_at: "'294000-01-01'" },
  "updated at no time": { updated_at: "'infinity'" },
  "scheduled before all times": { scheduled_at: "'-infinity'" },
  "processing without a claim": { state: "'processing'" },
  "pending with a claim": { claim_token: "gen_random_uuid()", lease_expires_at: "'infinity'" },
};

function unwanted(): string {
  return `'{"id": "${UNWANTED}"}'`;
}

/** Rows whose outcome cannot be written down. */
const REFUSED: Readonly<Record<string, PoisonedRow>> = {
  "sent is refused": { headers: `'{"x-refuse-sent": "1"}'` },
  "sent is refused by a constraint": { headers: `'{"x-check-sent": "1"}'` },
  "each outcome is refused": { headers: `'{"x-refuse-outcome": "1"}'` },
};

/** A row that is parked, and ends when it is discarded. */
const PARKED: PoisonedRow = { topic: `'${UNWANTED_TOPIC}'`, payload: unwanted() };

const LONGEST_PAUSE_MS = 800;

export interface PoisonerOptions {
  readonly database: { connect(): Promise<pg.Client> };
  readonly ingest: readonly Pick<Replica, "post">[];
  readonly durationMs: number;
  readonly seed: number;
  readonly selected: ReadonlySet<FaultName>;
  readonly signal: AbortSignal;
}

/** Puts what is selected of it into the tables, one row after another. */
export async function poison(options: PoisonerOptions): Promise<void> {
  const { durationMs, seed, selected, signal } = options;
  const random = seeded(seed + 17);
  const kinds = [
    ...(selected.has("poisoned rows")
      ? Object.entries(POISONED).map(([kind, row]) => insertion(kind, row, "ends"))
      : []),
    ...(selected.has("poisoned rows") ? [postOddKey] : []),
    ...(selected.has("refused rows") ? Object.entries(REFUSED).map(([kind, row]) => insertion(kind, row, "any")) : []),
    ...(selected.has("refused rows") ? [postRefused] : []),
    ...(selected.has("parked rows") ? [insertion("parked, then discarded", PARKED, "ends")] : []),
    ...(selected.has("foreign rows") ? Array.from({ length: 4 }, () => insertForeign) : []),
  ];
  if (kinds.length === 0) return;
  const end = performance.now() + durationMs;
  // Each kind in its turn, in an order of the seed's, and so soon that a short run meets most of them.
  const longestMs = Math.min(LONGEST_PAUSE_MS, (1.5 * durationMs) / kinds.length);
  const turns = kinds.map((kind) => ({ kind, place: random() })).sort((a, b) => a.place - b.place);
  for (let n = 0; performance.now() < end; n += 1) {
    await sleep(between([longestMs / 4, longestMs], random()), undefined, { signal });
    // The database or the replica may be away: then this one is left out.
    await turns[n % turns.length]?.kind(options, n, random).catch(() => {});
  }
}

type Deed = (options: PoisonerOptions, n: number, random: () => number) => Promise<void>;

function insertion(kind: string, row: PoisonedRow, fate: "ends" | "any"): Deed {
  return async ({ database }, n) => {
    const id = randomUUID();
    const columns: PoisonedRow = {
      topic: "'orders.http'",
      key: `'poison-${n}'`,
      payload: `'{"id": "${POISON_PREFIX}${n}"}'`,
      max_attempts: "2",
      ...row,
      id: `'${id}'`,
    };
    await inTransaction(database, [
      `INSERT INTO outbox (${Object.keys(columns).join(", ")}) VALUES (${Object.values(columns).join(", ")})`,
      `INSERT INTO poisoned VALUES ('${id}', '${kind}', '${fate}')`,
    ]);
  };
}

/** An inbox row of a source that is not configured, about the very things that the senders' messages are about. */
const insertForeign: Deed = async ({ database }, n, random) => {
  await inTransaction(database, [
    `INSERT INTO inbox (source, idempotency_key, aggregate_id, event_type, payload)
     VALUES ('gone', 'p-${n}', 'key-${Math.floor(40 * random())}', 'http', '{"id": "p-gone"}')`,
  ]);
};

const postRefused: Deed = async ({ ingest }, n, random) => {
  const id = `p-refuse-${random() < 0.5 ? "relay" : "receipt"}-${n}`;
  await ingest[n % ingest.length]?.post("orders", JSON.stringify({ id, key: `poison-${n}`, type: "http" }));
};

const postOddKey: Deed = async ({ ingest }, n) => {
  const id = `p-odd-\u0001\u007f\r\n-${n}`;
  await ingest[n % ingest.length]?.post("orders", JSON.stringify({ id, key: `poison-${n}`, type: "http" }));
};

async function inTransaction(database: PoisonerOptions["database"], statements: readonly string[]): Promise<void> {
  const client = await database.connect();
  try {
    await client.query(["BEGIN", ...statements, "COMMIT"].join("; "));
  } finally {
    await client.end().catch(() => {});
  }
}

/** Counts the rows of the outbox that have to end and have not, by their state and what is odd about them. */
export const UNFINISHED = `
SELECT o.state, coalesce(p.kind, CASE WHEN o.key LIKE 'poison-%' THEN 'posted' ELSE 'ordinary' END) AS kind, count(*)::int AS rows
FROM outbox o LEFT JOIN poisoned p ON p.row_id = o.id
WHERE o.state NOT IN ('sent', 'dead') AND coalesce(p.fate, 'ends') = 'ends'
GROUP BY 1, 2 ORDER BY 2, 1`;

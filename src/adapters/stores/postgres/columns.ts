import { type INBOX_COLUMNS, type OUTBOX_COLUMNS, ROUTES_HASH_LENGTH } from "../../../model/rows.ts";
import { type ColumnRule, LONGEST_ERROR } from "../sql/schema.ts";

const TEXTS = ["text", "varchar", "bpchar", "citext"] as const;
/** Columns that are read as text and written with a cast. */
const LABELS = [...TEXTS, "uuid", "int2", "int4", "int8", "enum"] as const;
const DOCUMENTS = [...TEXTS, "json", "jsonb"] as const;
const COUNTS = ["int2", "int4", "int8"] as const;

/** Fractions would be rounded to another place in the order. */
export const WHOLE_NUMERIC = "numeric(n, 0)";

const uuid: ColumnRule = { accepted: ["uuid"], definition: "uuid" };
const id: ColumnRule = {
  ...uuid,
  fallback: "gen_random_uuid()",
  definition: "uuid NOT NULL UNIQUE DEFAULT gen_random_uuid()",
  notNull: true,
};
const text: ColumnRule = { accepted: TEXTS, definition: "text" };
const label: ColumnRule = { ...text, accepted: LABELS };
const document: ColumnRule = { ...text, accepted: DOCUMENTS };
const headers: ColumnRule = {
  accepted: ["jsonb", "json", "text", "varchar"],
  fallback: "'{}'",
  definition: "jsonb DEFAULT '{}'",
};
const time: ColumnRule = { accepted: ["timestamptz", "timestamp"], definition: "timestamptz" };
const now: ColumnRule = { ...time, fallback: "now()", definition: "timestamptz NOT NULL DEFAULT now()" };
const count = (fallback: string): ColumnRule => ({
  accepted: COUNTS,
  fallback,
  definition: `integer NOT NULL DEFAULT ${fallback}`,
});
/** @param history what rows that are there already count as, when the column is added */
const state = (history: string, leastLength: number): ColumnRule => ({
  ...text,
  fallback: "'pending'",
  definition: `text NOT NULL DEFAULT '${history}'`,
  leastLength,
});

export const INBOX_RULES = {
  id,
  source: { ...text, definition: "text NOT NULL DEFAULT ''" },
  idempotencyKey: { ...text, definition: "text NOT NULL DEFAULT gen_random_uuid()::text" },
  aggregateId: text,
  eventType: text,
  payload: document,
  state: state("processed", "processed".length),
  createdAt: now,
  processedAt: time,
  claimedAt: time,
  claimToken: uuid,
  leaseExpiresAt: time,
  correlationId: text,
  consumption: { ...text, fallback: "'push'", definition: "text NOT NULL DEFAULT 'push'", leastLength: "push".length },
  scheduledAt: now,
  attempt: count("0"),
  lastError: { ...text, leastLength: LONGEST_ERROR },
  headers,
  expiresAt: { ...time, isOptional: true },
} as const satisfies Record<keyof typeof INBOX_COLUMNS, ColumnRule>;

export const OUTBOX_RULES = {
  id,
  topic: label,
  key: label,
  aggregateType: label,
  payload: document,
  headers,
  state: state("sent", "processing".length),
  attempt: count("0"),
  maxAttempts: count("5"),
  scheduledAt: now,
  createdAt: now,
  updatedAt: now,
  claimedAt: time,
  claimToken: uuid,
  leaseExpiresAt: time,
  lastError: { ...text, leastLength: LONGEST_ERROR },
  sequence: {
    accepted: ["int8", "int4", WHOLE_NUMERIC],
    definition: "bigint GENERATED ALWAYS AS IDENTITY",
    notNull: true,
  },
  destination: { ...text, isOptional: true },
  routes: { ...text, isOptional: true, leastLength: ROUTES_HASH_LENGTH },
  expiresAt: { ...time, isOptional: true },
  messageSequence: { accepted: ["int8", WHOLE_NUMERIC], definition: "bigint", isOptional: true },
  expandedTo: { ...text, isOptional: true },
} as const satisfies Record<keyof typeof OUTBOX_COLUMNS, ColumnRule>;

/** Types, as a cast names them, of columns written with a cast: an owner may have chosen them. */
export interface ColumnTypes {
  readonly inboxSource: string;
  readonly inboxIdempotencyKey: string;
  readonly inboxPayload: string;
  readonly inboxHeaders: string;
  readonly outboxTopic: string;
  readonly outboxKey: string;
  readonly outboxPayload: string;
  readonly outboxHeaders: string;
  /** Whether the inbox stores texts unchanged: `char(n)` pads them, `varchar(n)` may cut blanks. */
  readonly keepsTexts: boolean;
}

export const BUNDLED_TYPES: ColumnTypes = {
  inboxSource: "text",
  inboxIdempotencyKey: "text",
  inboxPayload: "text",
  inboxHeaders: "jsonb",
  outboxTopic: "text",
  outboxKey: "text",
  outboxPayload: "text",
  outboxHeaders: "jsonb",
  keepsTexts: true,
};

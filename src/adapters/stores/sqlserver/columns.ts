import { type INBOX_COLUMNS, type OUTBOX_COLUMNS, ROUTES_HASH_LENGTH } from "../../../model/rows.ts";
import { type ColumnRule, LONGEST_ERROR } from "../sql/schema.ts";
import { COLLATED } from "./fragments.ts";

/** What the statements of this store accept per column, and how the bundled tables have it. */

const TEXTS = ["nvarchar", "varchar", "nchar", "char"] as const;
/** Columns of which the driver makes a text, and which the server converts to and from texts by itself. */
const LABELS = [...TEXTS, "uniqueidentifier", "tinyint", "smallint", "int", "bigint"] as const;
const COUNTS = ["tinyint", "smallint", "int", "bigint"] as const;

const uuid: ColumnRule = {
  accepted: ["uniqueidentifier"],
  type: "uniqueidentifier",
  definition: "uniqueidentifier NULL",
};
const id: ColumnRule = {
  ...uuid,
  definition: "uniqueidentifier NOT NULL DEFAULT NEWID() UNIQUE NONCLUSTERED",
  notNull: true,
};
const text = (type: string, rest: string): ColumnRule => ({ accepted: TEXTS, type, definition: `${type} ${rest}` });
const label = (type: string, rest: string): ColumnRule => ({ ...text(type, rest), accepted: LABELS });
const long = (rest: string): ColumnRule => ({
  ...text("nvarchar(max)", rest),
  accepted: [...TEXTS, "json"],
});
const time: ColumnRule = {
  accepted: ["datetimeoffset", "datetime2", "datetime"],
  type: "datetimeoffset(7)",
  definition: "datetimeoffset(7) NULL",
};
const now: ColumnRule = { ...time, definition: "datetimeoffset(7) NOT NULL DEFAULT SYSUTCDATETIME()" };
const count = (fallback: string): ColumnRule => ({
  accepted: COUNTS,
  type: "int",
  definition: `int NOT NULL DEFAULT ${fallback}`,
});
/** @param history what rows that are there already count as, when the column is added */
const state = (history: string, leastLength: number): ColumnRule => ({
  ...text("nvarchar(20)", `${COLLATED} NOT NULL DEFAULT N'${history}'`),
  fallback: "N'pending'",
  leastLength,
});

export const INBOX_RULES = {
  id,
  source: text("nvarchar(200)", `${COLLATED} NOT NULL DEFAULT N''`),
  idempotencyKey: text("nvarchar(255)", `${COLLATED} NOT NULL DEFAULT CONVERT(nvarchar(36), NEWID())`),
  aggregateId: text("nvarchar(800)", `${COLLATED} NULL`),
  eventType: text("nvarchar(400)", `${COLLATED} NULL`),
  payload: long("NULL"),
  state: state("processed", "processed".length),
  createdAt: now,
  processedAt: time,
  claimedAt: time,
  claimToken: uuid,
  leaseExpiresAt: time,
  correlationId: text("nvarchar(400)", "NULL"),
  consumption: { ...text("nvarchar(20)", `${COLLATED} NOT NULL DEFAULT N'push'`), leastLength: "push".length },
  scheduledAt: now,
  attempt: count("0"),
  lastError: { ...text("nvarchar(max)", "NULL"), leastLength: LONGEST_ERROR },
  headers: long("NULL DEFAULT N'{}'"),
  expiresAt: { ...time, isOptional: true },
} as const satisfies Record<keyof typeof INBOX_COLUMNS, ColumnRule>;

export const OUTBOX_RULES = {
  id,
  topic: label("nvarchar(1000)", `${COLLATED} NULL`),
  key: label("nvarchar(800)", `${COLLATED} NULL`),
  aggregateType: label("nvarchar(400)", "NULL"),
  payload: long("NULL"),
  headers: long("NULL DEFAULT N'{}'"),
  state: state("sent", "processing".length),
  attempt: count("0"),
  maxAttempts: count("5"),
  scheduledAt: now,
  createdAt: now,
  updatedAt: now,
  claimedAt: time,
  claimToken: uuid,
  leaseExpiresAt: time,
  lastError: { ...text("nvarchar(max)", "NULL"), leastLength: LONGEST_ERROR },
  sequence: {
    accepted: ["bigint", "int"],
    type: "bigint",
    definition: "bigint NOT NULL IDENTITY (1, 1)",
    notNull: true,
  },
  destination: { ...text("nvarchar(400)", `${COLLATED} NULL`), isOptional: true },
  routes: { ...text("nvarchar(16)", `${COLLATED} NULL`), isOptional: true, leastLength: ROUTES_HASH_LENGTH },
  expiresAt: { ...time, isOptional: true },
  messageSequence: { accepted: ["bigint"], type: "bigint", definition: "bigint NULL", isOptional: true },
  expandedTo: { ...text("nvarchar(max)", "NULL"), isOptional: true },
} as const satisfies Record<keyof typeof OUTBOX_COLUMNS, ColumnRule>;

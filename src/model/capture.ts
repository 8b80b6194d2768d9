/** Whether a server still has the log that a replication slot needs (PostgreSQL documentation, "pg_replication_slots": `wal_status`). */
export const SLOT_STATUSES = ["reserved", "extended", "unreserved", "lost"] as const;
export type SlotStatus = (typeof SLOT_STATUSES)[number];

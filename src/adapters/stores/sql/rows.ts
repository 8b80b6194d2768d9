import type { ClaimedRow, ClaimToken, MessageId } from "../../../model/rows.ts";
import type { FinishedRow } from "../../../ports/finishedRows.ts";
import type { PulledRow } from "../../../ports/pullStore.ts";
import type { OutboxBacklog } from "../../../ports/store.ts";
import { headersOf } from "./headers.ts";

/** A row as a driver gives it. The statements of every database name their columns alike; identities come as decimal text. */
export type Row = Readonly<Record<string, unknown>>;

/** @returns the ids of rows with a column `id` */
export function idsOf(rows: readonly Row[]): MessageId[] {
  return rows.map((row) => row.id as MessageId);
}

/** @returns the age in a column `oldest_ms`; null when there is no row. The clock may have been put back since the row was written. */
export function oldestAgeMs(row: Row | undefined): number | null {
  const oldest = row?.oldest_ms;
  return oldest === undefined || oldest === null ? null : Math.max(0, Number(oldest));
}

export function backlogOf(row: Row | undefined): OutboxBacklog {
  return {
    pending: Number(row?.pending ?? 0),
    oldestPendingAgeMs: oldestAgeMs(row),
    blockedKeys: Number(row?.blocked_keys ?? 0),
  };
}

/** @param token under which the row was claimed */
export function claimedRow(row: Row, token: ClaimToken): ClaimedRow {
  return {
    id: row.id as MessageId,
    claimToken: token,
    sequence: row.sequence as string,
    topic: row.topic as string,
    key: row.key as string | null,
    aggregateType: row.aggregate_type as string | null,
    payload: row.payload as string,
    headers: headersOf(row.headers),
    attempt: row.attempt as number,
    maxAttempts: row.max_attempts as number,
    createdAt: row.created_at as Date,
  };
}

export function pulledRow(row: Row): PulledRow {
  return {
    id: row.id as MessageId,
    aggregateId: row.aggregate_id as string | null,
    eventType: row.event_type as string | null,
    idempotencyKey: row.idempotency_key as string,
    correlationId: row.correlation_id as string | null,
    attempt: row.attempt as number,
    createdAt: row.created_at as Date,
    headers: headersOf(row.headers),
    payload: row.payload as string,
  };
}

export function finishedRow(row: Row): FinishedRow {
  return {
    id: row.id as MessageId,
    sequence: row.sequence as string,
    topic: row.topic as string,
    key: row.key as string | null,
    state: row.state as FinishedRow["state"],
    attempt: row.attempt as number,
    createdAt: row.created_at as Date,
    lastError: row.last_error as string | null,
  };
}

import { hash } from "node:crypto";
import type { NewInboxRow } from "./rows.ts";

/**
 * Hash buckets: every key falls into one, and every bucket belongs to one cell. Cells are added and removed by moving
 * buckets between them. The number is the same for ever.
 */
export const BUCKETS = 1024;

/**
 * The bucket of a key: the first four bytes of the SHA-256 of its UTF-8, as a number, modulo {@link BUCKETS}.
 *
 * @returns 0 to 1023
 */
export function bucketOf(key: string): number {
  // In one call: a hash object is the dearest part of a receipt into a cell, and garbage.
  return Number.parseInt(hash("sha256", key, "hex").slice(0, 8), 16) % BUCKETS;
}

/** What decides the bucket of a received message: its aggregate id, else its idempotency key. */
export function bucketKeyOf({
  aggregateId,
  idempotencyKey,
}: Pick<NewInboxRow, "aggregateId" | "idempotencyKey">): string {
  return aggregateId ?? idempotencyKey;
}

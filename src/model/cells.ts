import { hash } from "node:crypto";
import type { NewInboxRow } from "./rows.ts";

/**
 * The cell of a key: the first four bytes of the SHA-256 of its UTF-8, as a number, modulo the number of cells. That is
 * chosen when the installation is made: another number would send keys to other cells.
 *
 * @returns its place in `database.cells`
 */
export function cellOf(key: string, cells: number): number {
  // In one call: a hash object is the dearest part of a receipt into a cell, and garbage.
  return Number.parseInt(hash("sha256", key, "hex").slice(0, 8), 16) % cells;
}

/** What decides the cell of a received message: its aggregate id, else its idempotency key. */
export function cellKeyOf({
  aggregateId,
  idempotencyKey,
}: Pick<NewInboxRow, "aggregateId" | "idempotencyKey">): string {
  return aggregateId ?? idempotencyKey;
}

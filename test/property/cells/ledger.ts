import { bucketKeyOf, bucketOf } from "../../../src/model/cells.ts";
import type { NewInboxRow } from "../../../src/model/rows.ts";
import type { Tables } from "./memoryCell.ts";

/** What of a cell the judge sees. */
export interface Judged {
  readonly name: string;
  readonly now: Tables;
  /** Messages that it has to know: see {@link heldIn}. */
  readonly held: ReadonlySet<string>;
}

/**
 * The messages that a cell has to know from now on: those that it took in, and those copied to it before it got their
 * bucket.
 *
 * @param before those that it had to know so far
 */
export function heldIn({ buckets, inbox }: Tables, before: ReadonlySet<string>): ReadonlySet<string> {
  const held = new Set(before);
  for (const row of inbox.values()) {
    const isTakenIn = row.state === "pending";
    if (isTakenIn || buckets.get(bucketOf(bucketKeyOf(row)))?.state === "open") held.add(row.idempotencyKey);
  }
  return held;
}

/** Judges from outside, by messages alone: what was stored as new where, and delivered in which order. */
export class Ledger {
  readonly broken: string[] = [];
  /** Messages that were stored, in that order; one that was lost and came again is as new. */
  readonly accepted = new Map<string, { readonly aggregateId: string | null; readonly number: number }>();
  /** Each first delivery, with the number that the message had then. */
  readonly #delivered = new Map<string, number>();
  #number = 0;

  /**
   * A cell has stored a message as new.
   *
   * @param cells as they were before that
   */
  stored({ idempotencyKey, aggregateId }: NewInboxRow, cell: string, cells: readonly Judged[]): void {
    for (const { name, held, now } of cells) {
      if (held.has(idempotencyKey))
        this.broken.push(`${idempotencyKey} is stored as new in ${cell} although ${name} has to know it`);
      if (name === cell) continue;
      const waiting = unfinished(now).find(
        (row) => row.aggregateId === aggregateId && !this.#delivered.has(row.idempotencyKey),
      );
      if (waiting !== undefined)
        this.broken.push(
          `${idempotencyKey} is stored in ${cell} while ${waiting.idempotencyKey} of its key is yet to be delivered from ${name}`,
        );
    }
    this.#number += 1;
    this.accepted.delete(idempotencyKey);
    this.accepted.set(idempotencyKey, { aggregateId, number: this.#number });
  }

  /** A message was delivered. Later ones of its key may have overtaken it only if it was delivered before. */
  delivered(idempotencyKey: string): void {
    const own = this.accepted.get(idempotencyKey);
    if (own === undefined || this.#delivered.has(idempotencyKey)) return;
    this.#delivered.set(idempotencyKey, own.number);
    for (const [other, { aggregateId, number }] of this.accepted) {
      if (aggregateId === own.aggregateId && number > own.number && this.#delivered.get(other) === number)
        this.broken.push(`${idempotencyKey} is delivered after ${other}, which came later`);
    }
  }
}

function unfinished({ inbox, outbox }: Tables) {
  const relayed = new Set<string>(outbox);
  return [...inbox.values()].filter(({ id, state }) => state === "pending" || relayed.has(id));
}

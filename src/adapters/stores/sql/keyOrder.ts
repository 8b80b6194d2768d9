/** What tells received messages apart. */
interface Keyed {
  readonly source: string;
  readonly idempotencyKey: string;
}

/**
 * An insert waits for the transaction that holds one of its keys. All batches of all processes insert their keys in this order, so that
 * two of them never wait for each other. Of two rows with one key the first stays first.
 */
export function inKeyOrder<T extends Keyed>(rows: readonly T[]): readonly T[] {
  return rows.toSorted((a, b) => byCodeUnits(a.source, b.source) || byCodeUnits(a.idempotencyKey, b.idempotencyKey));
}

/** The same in every process, whatever its locale. */
function byCodeUnits(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

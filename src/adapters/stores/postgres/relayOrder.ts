import type { TableNames } from "../sql/names.ts";
import { uncollated } from "./fragments.ts";

export function relayOrder(names: TableNames) {
  const c = names.inbox;
  const waitsForRelay = `i.${c.state} = 'pending' AND i.${c.consumption} = 'push'`;
  /**
   * Rows are relayed in the order of `position`, the later of `created_at` and `scheduled_at`, then `created_at` and
   * `id`. Two fronts have an index each: ordinary rows, due from their receipt on whatever the clock shows, and rows
   * put off until `scheduled_at`. A NULL there, which an owner's table may allow, counts as ordinary.
   */
  const ORDINARY: RelayQueue = {
    is: `(i.${c.scheduledAt} > i.${c.createdAt}) IS NOT TRUE`,
    position: `i.${c.createdAt}`,
  };
  const DEFERRED: RelayQueue = { is: `i.${c.scheduledAt} > i.${c.createdAt}`, position: `i.${c.scheduledAt}` };
  const hasCome = (queue: RelayQueue, clock: string): string =>
    queue === ORDINARY ? "" : ` AND ${queue.position} <= ${clock}`;
  /**
   * @param from the first position of the relay, in microseconds since 1970; see `waits`. New rows
   *   have earlier positions after the clock was set back: no statement starts later than `waits` says by its clock
   */
  const waitsIn = ({ is, position }: RelayQueue, from: string): string =>
    `${waitsForRelay} AND ${is} AND ${position} >= least('epoch'::timestamptz + ${from}::bigint * interval '1 microsecond', ${LATEST_START})`;
  /** The outbox key of an inbox row. @param ownKeySources the sources with keys of their own (jsonb) */
  const keyOf = (row: string, ownKeySources: string): string =>
    `CASE WHEN ${ownKeySources} ? ${row}.${c.source} THEN ${uncollated(`${row}.${c.source}`)} || ':' || ${row}.${c.aggregateId} ELSE ${row}.${c.aggregateId} END`;
  return { waitsForRelay, ORDINARY, DEFERRED, hasCome, waitsIn, keyOf };
}

/** Rows that wait for the relay, in an order of their own. */
export interface RelayQueue {
  readonly is: string;
  readonly position: string;
}

/** Longer than from one look to the next. */
export const LATEST_START = "now() - interval '2 seconds'";

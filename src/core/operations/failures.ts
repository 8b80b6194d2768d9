import type { MessageId } from "../../model/rows.ts";

/** A row that failed for good. */
interface FailedRow {
  readonly id: MessageId;
  readonly state: "dead" | "parked";
  /** Null without a route. */
  readonly destination: string | null;
  readonly at: Date | null;
  readonly reason: string | null;
}

/** Rows that failed for the same reason. */
export interface FailureGroup {
  readonly state: FailedRow["state"];
  readonly destination: string | null;
  /** That of the newest row. */
  readonly reason: string | null;
  readonly count: number;
  readonly newestAt: Date | null;
  readonly oldestAt: Date | null;
  /** Of the newest rows. */
  readonly ids: readonly MessageId[];
}

/** @param rows newest first. @returns the largest group first */
export function groupFailures(rows: readonly FailedRow[]): readonly FailureGroup[] {
  const groups = new Map<string, FailedRow[]>();
  for (const row of rows) {
    const key = JSON.stringify([row.state, row.destination, row.reason === null ? null : withoutDetails(row.reason)]);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [row]);
    else group.push(row);
  }
  return [...groups.values()]
    .toSorted((a, b) => b.length - a.length)
    .flatMap((group) => {
      const [newest] = group;
      if (newest === undefined) return [];
      const { state, destination, reason, at } = newest;
      return [
        {
          state,
          destination,
          reason,
          count: group.length,
          newestAt: at,
          oldestAt: group.at(-1)?.at ?? null,
          ids: group.slice(0, MOST_IDS).map(({ id }) => id),
        },
      ];
    });
}

const MOST_IDS = 5;

/**
 * The words of a reason: without ids, numbers and times, and without what a receiver answered behind the first line.
 */
function withoutDetails(reason: string): string {
  const [line = ""] = reason.split("\n", 1);
  return line
    .replaceAll(/\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b/gi, "#")
    .replaceAll(/(?<!answered )\b[0-9a-f]*\d[0-9a-f.:]*\b/gi, "#")
    .slice(0, COMPARED);
}

/** The answer of a receiver may differ from row to row further on. */
const COMPARED = 120;

import type { DestinationOf, RoutedRow } from "../../model/rows.ts";
import type { Redact } from "../redaction/redact.ts";
import type { ReplayRequest } from "./replayRequest.ts";
import type { FailedGroup } from "./shown.ts";

/**
 * The group of a failed row: the beginning of its reason, with each word that has a digit (a number, id, time or address)
 * as `#`; only the status of an answer stays. The text of a group is of that group.
 */
export function reasonGroup(reason: string): string {
  // Cut within a word, its beginning may be a number.
  return masked(masked(reason.slice(0, READ)).slice(0, COMPARED));
}

const masked = (text: string): string =>
  text
    .replaceAll(/\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b/gi, "#")
    .replaceAll(/(?<!answered )\b\w*\d[\w.:]*\b/g, "#")
    .replaceAll(/\p{Surrogate}/gu, "\ufffd")
    .replaceAll(/\s+/g, " ")
    .trim();

/** What every reader of failed rows has of their reasons. */
const READ = 200;
/** The answer of a receiver may differ from row to row further on. */
const COMPARED = 120;

type FailedRow = RoutedRow & { readonly state?: string; readonly lastError: string | null };
interface View {
  readonly destinationOf: DestinationOf;
  readonly redact: Redact;
}
type Selection = Pick<ReplayRequest, "destination" | "reason">;

/** Of a sent row null: its reason is that of an attempt before. */
const groupOf = ({ state, lastError }: FailedRow, redact: Redact): string | null =>
  state === "sent" || lastError === null ? null : reasonGroup(redact(lastError));

/** The selection with the group of its reason, for comparisons and notes. */
export const inGroup = <T extends Selection>(selection: T, redact: Redact): T =>
  selection.reason === undefined ? selection : { ...selection, reason: reasonGroup(redact(selection.reason)) };

/** Whether a row goes to the destination, and failed for the reason, of a selection. */
export function matcher(selection: Selection, { destinationOf, redact }: View): (row: FailedRow) => boolean {
  const { destination, reason } = inGroup(selection, redact);
  return (row) =>
    (destination === undefined || (destinationOf(row) ?? null) === destination) &&
    (reason === undefined || groupOf(row, redact) === reason);
}

export class FailedGroups {
  readonly #counts = new Map<string, number>();

  add(row: FailedRow, { destinationOf, redact }: View): void {
    const group = JSON.stringify([groupOf(row, redact), row.topic, destinationOf(row) ?? null]);
    const count = this.#counts.get(group);
    if (count !== undefined || this.#counts.size < MOST_GROUPS) this.#counts.set(group, (count ?? 0) + 1);
  }

  /** The largest first. */
  get shown(): readonly FailedGroup[] {
    const largest = [...this.#counts].toSorted(([, a], [, b]) => b - a).slice(0, MOST_SHOWN);
    return largest.map(([group, count]) => {
      const [reason, topic, destination] = JSON.parse(group) as [string | null, string | null, string | null];
      return { reason, topic, destination, count };
    });
  }
}

/** In memory: topics may be as many as rows. */
const MOST_GROUPS = 1000;
const MOST_SHOWN = 20;

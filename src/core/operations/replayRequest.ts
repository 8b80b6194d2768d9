import type { MessageId } from "../../model/rows.ts";
import type { Changed, FinishedRow, FinishedState } from "../../ports/finishedRows.ts";
import type { FailedGroup } from "./shown.ts";

/** Which finished rows to replay; the fields given are combined with AND (spec, "POST /admin/replay"). */
export interface ReplayRequest {
  /** Dead rows of the inbox, not finished ones of the outbox; no filter. */
  readonly inbox?: boolean | undefined;
  /** Only inbox rows of this source. */
  readonly source?: string | undefined;
  readonly state?: FinishedState | undefined;
  readonly ids?: readonly MessageId[] | undefined;
  readonly topic?: string | undefined;
  readonly topics?: readonly string[] | undefined;
  /** Only rows that go to this destination; null for rows that no route sends anywhere, beside another filter. */
  readonly destination?: string | null | undefined;
  /** Only dead rows of the group of this reason. */
  readonly reason?: string | undefined;
  /** ISO-8601 in UTC with microseconds, as {@link instant} gives it; exclusive, as is `createdBefore`. */
  readonly createdAfter?: string | undefined;
  readonly createdBefore?: string | undefined;
  /** For the rest of a replay that ended early: rows that finished before it began. */
  readonly finishedBefore?: string | undefined;
  /** No filter: their destination from now on; by default their former one. */
  readonly toDestination?: string | undefined;
  /** No filter: a destination of the list of their route, to which matching messages are delivered that never went there. */
  readonly add?: string | undefined;
}

export interface Moves extends Changed {
  readonly rows: number;
}

export interface ReplayPreview {
  readonly count: number;
  /** The first rows in the order of sequence. */
  readonly sample: readonly FinishedRow[];
  readonly groups: readonly FailedGroup[];
  /** False when there may be more. */
  readonly isExact: boolean;
}

export const MOST_PER_SECOND = 100_000;

/** The answer to a request without a filter, as the specification words it. */
export const NO_FILTER = "A replay needs at least one filter.";

/** False when no field is set: such a request could replay everything. An empty list is set, and matches nothing. */
export function hasFilter({
  inbox: _inbox,
  toDestination: _toDestination,
  add: _add,
  ...filters
}: ReplayRequest): boolean {
  return Object.values(filters).some((field) => field !== undefined && field !== null);
}

/** @returns which field does not fit the table that is meant, as a reason; undefined if each does */
export function misfit(request: ReplayRequest): string | undefined {
  const {
    inbox = false,
    ids: _ids,
    createdAfter: _after,
    createdBefore: _before,
    source,
    state,
    ...ofOutbox
  } = request;
  if (inbox && state === "sent") return '"state" is "sent"; of the inbox only dead rows are replayed';
  const given = (fields: object) =>
    Object.entries(fields).find(([, value]) => value !== undefined && value !== null)?.[0];
  const wrong = given(inbox ? ofOutbox : { source });
  if (wrong !== undefined) return `"${wrong}" ${inbox ? "cannot be combined with" : "needs"} "inbox"`;
  const { add, destination, reason, toDestination } = ofOutbox;
  const ofRows = given({ add }) && given({ state, destination, reason, toDestination });
  return ofRows && `"${ofRows}" cannot be combined with "add", which is about messages`;
}

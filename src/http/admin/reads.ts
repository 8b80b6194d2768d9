import type { Parked } from "../../core/finished/parked.ts";
import { parkedRowShown } from "../../core/finished/parked.ts";
import * as requests from "../../core/finished/requests.ts";
import { watchNames } from "../../core/operations/leftOut.ts";
import type { Overview } from "../../core/operations/overview.ts";
import { CursorError } from "../../core/trace/pages.ts";
import { MESSAGE_STATES, MOST_MESSAGES, type Trace } from "../../core/trace/trace.ts";
import { DONE, decodePositions, POSITIONS_PATTERN } from "../../model/cellPositions.ts";
import type { MessageId } from "../../model/rows.ts";
import { LONGEST_PATTERN } from "../../model/topicPattern.ts";
import type { OperationsStore } from "../../ports/operationsStore.ts";
import type { Cells } from "../../ports/operatorStore.ts";
import { ERRORS } from "../exchange.ts";
import { TIME, UUID } from "../openapi/schemas.ts";
import { choice, numberParameter, textParameter, type ValuesOf } from "./query.ts";
import { onTable, Refusal } from "./requests.ts";

/** What the admin routes show: messages, parked rows, and the whole installation at a glance. */

/** Makes an answer, with the names of the cells that it is without. @param cells undefined without cells */
export async function namingMissing(
  cells: Pick<Cells, "watch"> | undefined,
  answer: () => Promise<object>,
): Promise<object> {
  const leftOut = watchNames(cells);
  const body = await answer();
  const missingCells = leftOut();
  return missingCells.length === 0 ? body : { ...body, missingCells };
}

const LISTED_BY_DEFAULT = 50;

export const MESSAGES_QUERY = {
  id: { parse: requests.parseMessageId, schema: UUID, description: "Only the message of this id." },
  idempotencyKey: textParameter("Only messages received under this key."),
  source: textParameter("Only messages received from this source."),
  correlationId: textParameter("Only messages of this correlation id."),
  key: textParameter("Only rows of this key, or aggregate id."),
  topic: textParameter("Only outbox rows of this topic."),
  destination: textParameter("Only outbox rows that the routes send to this destination."),
  state: choice(MESSAGE_STATES, "Only rows in this state; `processed` is of the inbox."),
  createdAfter: {
    parse: (text: string) => requests.parseInstant(text, "after"),
    schema: TIME,
    description: "Only rows created after this instant.",
  },
  createdBefore: {
    parse: (text: string) => requests.parseInstant(text, "before"),
    schema: TIME,
    description: "Only rows created before this instant.",
  },
  cursor: textParameter("The `cursor` of the page before."),
  limit: numberParameter(MOST_MESSAGES, "Most messages; 50 by default."),
};

/** Messages that match, newest first, in pages. */
export function findMessages(trace: Pick<Trace, "list">) {
  return async ({ cursor, limit = LISTED_BY_DEFAULT, ...filter }: ValuesOf<typeof MESSAGES_QUERY>): Promise<object> => {
    try {
      const { messages, cursor: next, filtered } = await trace.list(filter, cursor, limit);
      // Absent where it is undefined.
      return { messages: messages.map(({ position: _position, ...message }) => message), cursor: next, filtered };
    } catch (error) {
      if (!(error instanceof CursorError)) throw error;
      throw new Refusal(404, ERRORS.noCursor);
    }
  };
}

/** What happened to a message, and why it waits. @param showsPayloads `admin.showPayloads` */
export function showMessage(trace: Pick<Trace, "timeline">, showsPayloads: boolean) {
  return async (id: MessageId | undefined): Promise<object> => {
    const found = id === undefined ? undefined : await trace.timeline(id);
    if (found === undefined) throw new Refusal(404, ERRORS.noMessage);
    const { timeline, payload, headers } = found;
    return showsPayloads ? { ...timeline, payload, headers } : timeline;
  };
}

/** At most two asterisks in a row. */
export const TOPIC_PATTERN = { pattern: "^(\\*{0,2}[^\\u0000*])*\\*{0,2}$", maxLength: LONGEST_PATTERN };

export const PARKED_QUERY = {
  topic: {
    parse: requests.parsePattern,
    schema: { type: "string", ...TOPIC_PATTERN },
    description: "Only rows whose topic matches this pattern, as in `routes`.",
  },
  key: textParameter("Only the row of this key."),
  limit: numberParameter(requests.MOST_LISTED, "Most rows; 50 by default."),
};

export function listParked(parked: Pick<Parked, "list">) {
  return async ({ limit = LISTED_BY_DEFAULT, ...selection }: ValuesOf<typeof PARKED_QUERY>): Promise<object> => ({
    rows: (await parked.list(selection, limit)).map(parkedRowShown),
  });
}

const MINUTES_BY_DEFAULT = 60;

export const OVERVIEW_QUERY = { minutes: numberParameter(1440, "How many minutes of figures; 60 by default.") };

export function showOverview(overview: Pick<Overview, "read">) {
  return async ({ minutes = MINUTES_BY_DEFAULT }: ValuesOf<typeof OVERVIEW_QUERY>): Promise<object> =>
    await overview.read(minutes);
}

export const LIMIT_QUERY = { limit: numberParameter(500, "Most of them; 50 by default.") };

export const FAILURES_QUERY = {
  state: choice(["dead", "parked"], "Only dead or only parked rows."),
  destination: textParameter("Only rows that the routes send to this destination."),
  ...LIMIT_QUERY,
};

export function showFailures(overview: Pick<Overview, "failures">) {
  return async ({ limit = LISTED_BY_DEFAULT, ...filter }: ValuesOf<typeof FAILURES_QUERY>): Promise<object> => {
    const { groups, ...read } = await overview.failures(filter);
    return { groups: groups.slice(0, limit), ...read };
  };
}

export function showBlockedKeys(overview: Pick<Overview, "blockedKeys">) {
  return async ({ limit = LISTED_BY_DEFAULT }: ValuesOf<typeof LIMIT_QUERY>): Promise<object> => ({
    keys: await overview.blockedKeys(limit),
  });
}

/** The `cursor` of the audit log is the id of an entry; with cells it has one of each. */
const SEQUENCE = /^[0-9]{1,18}$/;
const AUDIT_CURSOR = `${SEQUENCE.source}|^${POSITIONS_PATTERN}$`;

const AUDIT_CURSOR_FORM = new RegExp(AUDIT_CURSOR);

function parseAuditCursor(text: string): string {
  if (AUDIT_CURSOR_FORM.test(text)) return text;
  throw new Error("the cursor of an answer is expected, as it came");
}

/** Whether an answer may have had it. */
function isAuditCursor(text: string): boolean {
  const ids = Object.values(decodePositions(text) ?? { id: text });
  return ids.every((id) => id === DONE || SEQUENCE.test(id)) && text !== DONE;
}

export const AUDIT_QUERY = {
  ...LIMIT_QUERY,
  cursor: {
    parse: parseAuditCursor,
    schema: { type: "string", pattern: AUDIT_CURSOR },
    description: "The `cursor` of the page before.",
  },
};

export function showAudit(store: Pick<OperationsStore, "audit">) {
  return ({ cursor, limit = LISTED_BY_DEFAULT }: ValuesOf<typeof AUDIT_QUERY>): Promise<object> =>
    onTable(ERRORS.noAuditTable, async () => {
      if (cursor !== undefined && !isAuditCursor(cursor)) throw new Refusal(404, ERRORS.noCursor);
      const entries = await store.audit(cursor ?? null, limit);
      const last = entries.at(-1);
      return {
        entries: entries.map(({ position: _position, ...entry }) => entry),
        cursor: entries.length < limit ? null : (last?.position ?? last?.id ?? null),
      };
    });
}

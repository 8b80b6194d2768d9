import * as requests from "../../core/finished/requests.ts";
import { CursorError } from "../../core/trace/pages.ts";
import { MESSAGE_STATES, MOST_MESSAGES, type Trace } from "../../core/trace/trace.ts";
import type { MessageId } from "../../model/rows.ts";
import { TIME, UUID } from "../openapi/schemas.ts";
import { ERRORS } from "../respond.ts";
import { choice, numberParameter, textParameter, type ValuesOf } from "./query.ts";
import { type AdminRequest, Refusal } from "./requests.ts";

/** `GET /admin/messages` and `GET /admin/messages/{id}`: where is my message. */

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

/** @returns undefined for a text that is not an id */
export function parseMessageId({ parameters: { id = "" } }: AdminRequest): MessageId | undefined {
  return requests.isUuid(id) ? (id.toLowerCase() as MessageId) : undefined;
}

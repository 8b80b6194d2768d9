import * as requests from "../../core/finished/requests.ts";
import {
  CursorError,
  MESSAGE_STATES,
  type MessageFilter,
  type MessageState,
  MOST_MESSAGES,
  type Trace,
} from "../../core/trace/trace.ts";
import type { MessageId } from "../../model/rows.ts";
import { ERRORS } from "../respond.ts";
import { type AdminRequest, queryParameters, Refusal } from "./requests.ts";

/** `GET /admin/messages` and `GET /admin/messages/{id}`: where is my message. */

const LISTED_BY_DEFAULT = 50;

interface MessagesQuery {
  readonly filter: MessageFilter;
  readonly cursor: string | undefined;
  readonly limit: number;
}

/** Messages that match, newest first, in pages. */
export function findMessages(trace: Pick<Trace, "list">) {
  return async ({ filter, cursor, limit }: MessagesQuery): Promise<object> => {
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

/**
 * What happened to a message, and why it waits.
 *
 * @param showsPayloads `admin.showPayloads`
 */
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

export function parseMessagesQuery({ url }: AdminRequest): MessagesQuery {
  const parameter = queryParameters(url);
  const { parseText, parseInstant } = requests;
  return {
    filter: {
      id: parameter("id", requests.parseMessageId),
      idempotencyKey: parameter("idempotencyKey", parseText),
      source: parameter("source", parseText),
      correlationId: parameter("correlationId", parseText),
      key: parameter("key", parseText),
      topic: parameter("topic", parseText),
      destination: parameter("destination", parseText),
      state: parameter("state", parseState),
      createdAfter: parameter("createdAfter", (text) => parseInstant(text, "after")),
      createdBefore: parameter("createdBefore", (text) => parseInstant(text, "before")),
    },
    cursor: parameter("cursor", parseText),
    limit: parameter("limit", parseLimit) ?? LISTED_BY_DEFAULT,
  };
}

function parseState(text: string): MessageState {
  const state = MESSAGE_STATES.find((each) => each === text);
  if (state === undefined) throw new Error(`one of ${MESSAGE_STATES.join(", ")} is expected`);
  return state;
}

function parseLimit(text: string): number {
  const limit = /^\d{1,3}$/.test(text) ? Number(text) : 0;
  if (limit >= 1 && limit <= MOST_MESSAGES) return limit;
  throw new Error(`a whole number from 1 to ${MOST_MESSAGES} is expected`);
}

import { CursorError } from "../../../core/operations/pages.ts";
import { choice, instant, MESSAGE_ID, numberUpTo, STORABLE } from "../../../core/operations/syntax.ts";
import { FILTERED_MESSAGE, FOUND_MESSAGE, MESSAGE_STATES } from "../../../core/operations/timeline.ts";
import { MOST_MESSAGES } from "../../../core/operations/trace.ts";
import * as schema from "../../../model/described.ts";
import { ERRORS } from "../../exchange.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import { type Admin, LISTED_BY_DEFAULT, Refusal } from "../operation.ts";

const SEARCHED =
  "Only messages of this id, idempotency key, correlation id or key, whichever finds some first, as `svc trace` does: 20 at most, on one page, after ten seconds at most.";
const FILTERED =
  "With `text`, `idempotencyKey` or `correlationId`, on the first page: messages of the last 24 hours that a source's filter dropped, newest first, 20 at most.";

const PAGE = schema.fromCells(
  { messages: schema.list(FOUND_MESSAGE), cursor: schema.TEXT_OR_NULL },
  { filtered: schema.list(FILTERED_MESSAGE, FILTERED) },
);

export const findMessages = ({ read, trace }: Admin) =>
  read("admin_messages", {
    summary: "Find messages",
    description:
      "Messages that match every parameter, newest first. One request reads for about a third of a second: a page may have fewer " +
      "messages than `limit`, or none, and still a `cursor` with which the search goes on.",
    query: {
      text: field.inQuery(STORABLE, SEARCHED),
      id: field.inQuery(MESSAGE_ID, "Only the message of this id."),
      idempotencyKey: field.inQuery(STORABLE, "Only messages received under this key."),
      source: field.inQuery(STORABLE, "Only messages received from this source."),
      correlationId: field.inQuery(STORABLE, "Only messages of this correlation id."),
      key: field.inQuery(STORABLE, "Only rows of this key, or aggregate id."),
      topic: field.inQuery(STORABLE, "Only outbox rows of this topic."),
      destination: field.inQuery(STORABLE, "Only outbox rows that the routes send to this destination."),
      state: field.inQuery(choice(MESSAGE_STATES), "Only rows in this state; `processed` is of the inbox."),
      createdAfter: field.inQuery(instant("after"), "Only rows created after this instant."),
      createdBefore: field.inQuery(instant("before"), "Only rows created before this instant."),
      cursor: field.inQuery(STORABLE, "The `cursor` of the page before."),
      limit: field.inQuery(numberUpTo(MOST_MESSAGES), "Most messages; 50 by default."),
    },
    answers: answer.queried(answer.json(200, "A page of messages.", PAGE), answer.NO_PAGE),
    async work({ cursor, limit = LISTED_BY_DEFAULT, ...filter }) {
      try {
        const { messages, cursor: next, filtered } = await trace.list(filter, cursor, limit);
        // Absent if it is undefined.
        return { messages: messages.map(({ position: _position, ...message }) => message), cursor: next, filtered };
      } catch (error) {
        if (!(error instanceof CursorError)) throw error;
        throw new Refusal(404, ERRORS.noCursor);
      }
    },
  });

import type { ActionResult } from "../../../core/operations/messageActions.ts";
import { CursorError } from "../../../core/operations/pages.ts";
import { choice, instant, MESSAGE_ID, numberUpTo, REASON, STORABLE } from "../../../core/operations/syntax.ts";
import {
  FILTERED_MESSAGE,
  FOUND_MESSAGE,
  MESSAGE_STATES,
  TIMELINE,
  TIMELINE_CELL,
} from "../../../core/operations/timeline.ts";
import { MOST_MESSAGES } from "../../../core/operations/trace.ts";
import * as schema from "../../../model/described.ts";
import type { MessageId } from "../../../model/rows.ts";
import { ERRORS } from "../../exchange.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import { type Admin, AS_ALICE, CALLER, idInPath, LISTED_BY_DEFAULT, namingMissing, Refusal } from "../operation.ts";
import { NO_DESTINATION_COLUMN, replayFields } from "./replay.ts";

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
      "messages than `limit`, or none, and still a `cursor` with which the search continues.",
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
        return { messages: messages.map(({ position: _position, ...message }) => message), cursor: next, filtered };
      } catch (error) {
        if (!(error instanceof CursorError)) throw error;
        throw new Refusal(404, ERRORS.noCursor);
      }
    },
  });

export const showMessage = ({ operation, trace, cells, admin }: Admin) =>
  operation("admin_message", {
    summary: "Show what happened to a message, and why it waits",
    description:
      "With `admin.showPayloads` also its `payload`, a text (null where fields are hidden in what is not JSON), and its " +
      "`headers`. Secrets and the fields of `admin.redactPayloadPaths` are masked in every text.",
    path: MESSAGE,
    answers: [
      answer.json(200, "The message.", schema.fromCells(TIMELINE, TIMELINE_CELL)),
      answer.error(404, "No such message.", ERRORS.noMessage),
      answer.STORAGE_FAILED,
    ],
    // The timeline masks itself, by the payload of the message.
    isMasked: true,
    work: ({ id }) =>
      namingMissing(cells, async () => {
        const found = id === undefined ? undefined : await trace.timeline(id);
        if (found === undefined) throw new Refusal(404, ERRORS.noMessage);
        const { timeline, payload, headers } = found;
        return admin.showPayloads ? { ...timeline, payload, headers } : timeline;
      }),
  });

export const retryMessage = ({ operation, messages }: Admin) =>
  operation("admin_message_retry", {
    summary: "Retry a message now",
    description: "A row that waits for its retry, or is parked, is due now.",
    path: MESSAGE,
    body: { fields: { by: CALLER }, examples: AS_ALICE },
    answers: actionAnswers(
      "The row is sent; only a row that waits for its retry, or is parked, can be retried: replay a finished one",
    ),
    work: ({ id, by }) => acted(id, (known) => messages.retry(known, by)),
  });

const MESSAGE = idInPath("Id of the message.");

const actionAnswers = (refusal: string): readonly answer.Answer[] => [
  answer.json(200, "It is done.", schema.object({ changed: { const: 1 } })),
  answer.invalidBody("..."),
  answer.error(404, "No such message.", ERRORS.noMessage),
  answer.error(409, "Its state does not allow it.", refusal),
  answer.STORAGE_FAILED,
];

/** Acts on one message. @throws Refusal when there is none, or its state does not allow it */
async function acted(id: MessageId | undefined, act: (id: MessageId) => Promise<ActionResult>): Promise<object> {
  const result = id === undefined ? ({ kind: "missing" } as const) : await act(id);
  if (result.kind === "missing") throw new Refusal(404, ERRORS.noMessage);
  if (result.kind === "changed") return { changed: 1 };
  const { reason } = result;
  throw new Refusal(409, `${reason.charAt(0).toUpperCase()}${reason.slice(1)}`);
}

export const discardMessage = ({ operation, messages }: Admin) =>
  operation("admin_message_discard", {
    summary: "Discard a message",
    description: "A pending row becomes `dead`; the next row of its key is free.",
    path: MESSAGE,
    body: {
      fields: { reason: field.required(field.text(REASON), "a text that says why"), by: CALLER },
      examples: {
        example: { summary: "An example", value: { reason: "cancelled by the customer", by: "alice" } },
      },
    },
    answers: actionAnswers("The row is in delivery; only a pending row can be discarded"),
    work: ({ id, reason, by }) => acted(id, (known) => messages.discard(known, by, reason)),
  });

export const replayMessage = ({ operation, destinations, messages, run }: Admin) =>
  operation("admin_message_replay", {
    summary: "Replay a message",
    description: "A sent or dead row is delivered again; a dead inbox row is received again, as with `inbox`.",
    path: MESSAGE,
    body: {
      fields: { toDestination: replayFields(destinations.names).toDestination, by: CALLER },
      examples: AS_ALICE,
    },
    answers: [...actionAnswers("The row is pending; only a sent or dead row can be replayed"), NO_DESTINATION_COLUMN],
    work: ({ id, by, toDestination }) =>
      acted(id, (known) => run((signal) => messages.replay(known, by, toDestination, signal))),
  });

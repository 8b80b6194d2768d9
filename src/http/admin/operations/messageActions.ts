import type { ActionResult } from "../../../core/operations/messageActions.ts";
import { REASON } from "../../../core/operations/syntax.ts";
import * as schema from "../../../model/described.ts";
import type { MessageId } from "../../../model/rows.ts";
import { ERRORS } from "../../exchange.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import { type Admin, AS_ALICE, CALLER, idInPath, Refusal } from "../operation.ts";
import { NO_DESTINATION_COLUMN, replayFields } from "./replay.ts";

export const retryMessage = ({ operation, messages }: Admin) =>
  operation("admin_message_retry", {
    summary: "Retry a message now",
    description: "A row that waits for its retry, or is parked, is due now.",
    path: MESSAGE_ID,
    body: { fields: { by: CALLER }, examples: AS_ALICE },
    answers: actionAnswers(
      "The row is sent; only a row that waits for its retry, or is parked, can be retried: replay a finished one",
    ),
    work: ({ id, by }) => acted(id, (known) => messages.retry(known, by)),
  });

export const MESSAGE_ID = idInPath("Id of the message.");

/** The answers to an action on one message. */
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
    path: MESSAGE_ID,
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
    path: MESSAGE_ID,
    body: {
      fields: { toDestination: replayFields(destinations.names).toDestination, by: CALLER },
      examples: AS_ALICE,
    },
    answers: [...actionAnswers("The row is pending; only a sent or dead row can be replayed"), NO_DESTINATION_COLUMN],
    work: ({ id, by, toDestination }) =>
      acted(id, (known) => run((signal) => messages.replay(known, by, toDestination, signal))),
  });

import { REASON } from "../../../core/operations/syntax.ts";
import * as field from "../../fields.ts";
import { type Admin, CALLER } from "../operation.ts";
import { acted, actionAnswers, MESSAGE_ID } from "./messageRetry.ts";

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

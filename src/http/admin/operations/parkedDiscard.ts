import { LONGEST_REASON, REASON } from "../../../core/operations/syntax.ts";
import * as field from "../../fields.ts";
import { type Admin, CALLER } from "../operation.ts";
import { CHANGED, SAYS_WHICH, selectionOf, whichRows } from "./parkedRetry.ts";

export const discardParked = ({ operation, destinations, parked, run }: Admin) =>
  operation("admin_parked_discard", {
    summary: "Discard parked outbox rows",
    description:
      "The rows become `dead`; `last_error` begins with the caller and the reason. The next rows of their keys are delivered.",
    body: {
      fields: {
        ...whichRows(destinations.names),
        by: CALLER,
        reason: field.required(
          field.text(REASON, "Why; kept in `last_error`."),
          `a text of 1 to ${LONGEST_REASON} characters`,
        ),
      },
      keywords: SAYS_WHICH,
      examples: {
        byKey: { summary: "The row of one key", value: { key: "order-17", reason: "order was cancelled" } },
      },
    },
    answers: CHANGED,
    work: ({ by, reason, ...which }) => run((signal) => parked.discard(selectionOf(which), by, reason, signal)),
  });

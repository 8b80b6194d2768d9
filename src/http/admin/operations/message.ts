import { TIMELINE, TIMELINE_CELL } from "../../../core/operations/timeline.ts";
import { fromCells } from "../../../model/described.ts";
import { ERRORS } from "../../exchange.ts";
import * as answer from "../../openapi/answers.ts";
import { type Admin, namingMissing, Refusal } from "../operation.ts";
import { MESSAGE_ID } from "./messageActions.ts";

export const showMessage = ({ operation, trace, cells, admin }: Admin) =>
  operation("admin_message", {
    summary: "Show what happened to a message, and why it waits",
    description:
      "With `admin.showPayloads` also its `payload`, a text (null where fields are hidden in what is not JSON), and its " +
      "`headers`. Secrets and the fields of `admin.redactPayloadPaths` are masked in every text.",
    path: MESSAGE_ID,
    answers: [
      answer.json(200, "The message.", fromCells(TIMELINE, TIMELINE_CELL)),
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

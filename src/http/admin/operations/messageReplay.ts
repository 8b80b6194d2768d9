import { type Admin, AS_ALICE, CALLER } from "../operation.ts";
import { acted, actionAnswers, MESSAGE_ID } from "./messageRetry.ts";
import { NO_DESTINATION_COLUMN, replayFields } from "./replay.ts";

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

import { answerSettled, CLAIM, MESSAGE_ID, number, type PullTools, settled, TOKEN, textOrNull } from "../operation.ts";

export const giveBack = ({ operation, pull, waiters }: PullTools, source: string) =>
  operation("pull_nack", source, {
    summary: "Give claimed messages back",
    fields: {
      ...CLAIM,
      delayMs: number({ from: 0, to: 86_400_000, fallback: 0 }, "Time until the messages are available again, in ms."),
      error: textOrNull("Why; stored with the message."),
    },
    schemaName: "NackRequest",
    example: { claimToken: TOKEN, delayMs: 5000, error: "the shop is closed" },
    answers: settled("The messages become available again, or are dead.", ["GivenBack", "NothingGivenBack"], {
      retried: [MESSAGE_ID],
      dead: [],
      released: [],
    }),
    async work({ claimToken: token, ids, delayMs, error }, res) {
      const outcome = await pull.reject({ source, token, ids }, delayMs, error);
      waiters.wake(source);
      answerSettled(res, ids, outcome, outcome.result);
    },
  });

import { answerSettled, CLAIM, MESSAGE_ID, type PullTools, settled, TOKEN } from "../operation.ts";

export const acknowledge = ({ operation, pull, waiters }: PullTools, source: string) =>
  operation("pull_ack", source, {
    summary: "Acknowledge claimed messages",
    fields: CLAIM,
    schemaName: "AckRequest",
    example: { claimToken: TOKEN },
    answers: settled("The messages are done.", ["Acknowledged", "NothingAcknowledged"], { acknowledged: [MESSAGE_ID] }),
    async work({ claimToken: token, ids }, res) {
      const outcome = await pull.acknowledge({ source, token, ids });
      waiters.wake(source);
      answerSettled(res, ids, outcome, { acknowledged: outcome.result });
    },
  });

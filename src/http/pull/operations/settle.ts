import {
  answerSettled,
  CLAIM,
  leaseMs,
  MESSAGE_ID,
  number,
  type PullTools,
  settled,
  TOKEN,
  textOrNull,
} from "../operation.ts";

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

export const extend = ({ operation, pull, settings }: PullTools, source: string) =>
  operation("pull_extend", source, {
    summary: "Hold claimed messages for longer",
    fields: { ...CLAIM, leaseMs: leaseMs(settings.leaseMs) },
    example: { claimToken: TOKEN, leaseMs: 60_000 },
    answers: settled("The leases are extended.", ["Extended", "NothingExtended"], { extended: [MESSAGE_ID] }),
    async work({ claimToken: token, ids, leaseMs: lease }, res) {
      const outcome = await pull.extend({ source, token, ids }, lease);
      answerSettled(res, ids, outcome, { extended: outcome.result });
    },
  });

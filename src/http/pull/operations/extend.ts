import { answerSettled, CLAIM, leaseMs, MESSAGE_ID, type PullTools, settled, TOKEN } from "../operation.ts";

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

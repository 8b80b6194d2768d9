import { expect, test } from "@jest/globals";
import type { SqlHistory } from "../../../../src/adapters/stores/sql/history.ts";
import { type ClaimStatements, OutboxClaims } from "../../../../src/adapters/stores/sql/outboxClaims.ts";
import type { StatementRunner, Values } from "../../../../src/adapters/stores/sql/rows.ts";
import { NO_LOW_WATER } from "../../../../src/adapters/stores/sql/rows.ts";
import { claimRequest } from "../../../conformance/store/harness.ts";
import { ManualClock } from "../../../support/recorders.ts";

/** An outbox of one queue in which nothing is due. @param tookMs of an idle check from the first row on */
function idleOutbox(tookMs: number) {
  const clock = new ManualClock();
  const checked: unknown[] = [];
  const runner = {
    run: async (_: string, { from }: Values) => {
      checked.push(from);
      if (from === "0") clock.advance(tookMs);
      return [{ answer: false, end: "5001" }];
    },
    runAll: async () => [],
  } as unknown as StatementRunner<string>;
  const inOrder = { claim: "claim", chosen: "chosen" };
  const sql = {
    oneQueue: { inOrder, pastBlocked: inOrder },
    due: "due",
    dialect: { scanOf: () => ({ rows: [], queues: [], labelled: 0, hasUnlabelled: false }) },
  } as unknown as ClaimStatements<string>;
  const claims = new OutboxClaims(runner, sql, NO_LOW_WATER, {} as SqlHistory<string>, clock);
  const claim = () => claims.claim(claimRequest());
  return { clock, checked, claim };
}

test.each([
  ["ten times what it cost", 30, 300],
  ["a second at most", 5000, 1000],
])(
  "an idle check rests for %s: meanwhile it reads what is behind the rows that it has read",
  async (_, tookMs, restMs) => {
    const { clock, checked, claim } = idleOutbox(tookMs);
    await claim();
    await claim();
    await claim();
    clock.advance(restMs - 1);
    await claim();
    expect(checked).toEqual(["0", "5001", "5001"]);
    clock.advance(1);
    await claim();
    expect(checked.at(-1)).toBe("0");
  },
);

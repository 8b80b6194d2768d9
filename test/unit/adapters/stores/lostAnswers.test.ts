import { expect, test } from "@jest/globals";
import type { SqlHistory } from "../../../../src/adapters/stores/sql/history.ts";
import { type ClaimStatements, OutboxClaims } from "../../../../src/adapters/stores/sql/outboxClaims.ts";
import type { StatementRunner } from "../../../../src/adapters/stores/sql/rows.ts";
import { NO_LOW_WATER } from "../../../../src/adapters/stores/sql/rows.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import type { ClaimQueues } from "../../../../src/ports/store.ts";
import { claimRequest } from "../../../conformance/store/harness.ts";
import { ManualClock } from "../../../support/recorders.ts";

test("a claim fails if the answer of its second statement is lost: the rows of that may be claimed, and nobody knows them", async () => {
  const lost = new StoreError("unavailable", "connection lost");
  let isLost = false;
  const runner = {
    runAll: async (statement: string) => {
      if (statement === "past" && isLost) throw lost;
      return [[{ statement }]];
    },
  } as unknown as StatementRunner<string>;
  const found = { queue: "held", candidates: 10, heldBack: 10, gap: 0 };
  const sql = {
    inOrder: { claim: "order", chosen: "" },
    pastBlocked: { claim: "past", chosen: "" },
    unlabelled: undefined,
    oneQueue: { inOrder: { claim: "order", chosen: "" }, pastBlocked: { claim: "past", chosen: "" } },
    dialect: {
      scanOf: ([[{ statement } = { statement: "" }] = []]: { statement: string }[][]) => ({
        rows: [{ id: "a", sequence: "1", headers: "{}", created_at: "0", expires_in_ms: null }],
        queues: statement === "order" ? [found] : [],
        labelled: 0,
        hasUnlabelled: false,
      }),
    },
  } as unknown as ClaimStatements<string>;
  const clock = new ManualClock();
  const claims = new OutboxClaims(runner, sql, NO_LOW_WATER, {} as SqlHistory<string>, clock);
  const queues = { room: new Map([["held", 10]]), routing: { hash: "" } } as unknown as ClaimQueues;
  const claim = () => claims.claim(claimRequest({ limit: 10, queues }));

  expect((await claim()).rows).toHaveLength(2);
  clock.advance(60_000);
  isLost = true;
  await expect(claim()).rejects.toBe(lost);
});

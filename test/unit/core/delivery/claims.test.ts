import { randomUUID } from "node:crypto";
import { expect, test } from "@jest/globals";
import { Claims } from "../../../../src/core/delivery/claims.ts";
import type { ClaimToken } from "../../../../src/model/rows.ts";
import type { ClaimRequest, ClaimResult } from "../../../../src/ports/store.ts";
import { ManualClock, recordingLog, silentMetrics } from "../../../support/recorders.ts";
import { ScriptedOutbox } from "../../../support/scriptedOutbox.ts";

/** @param msOf how long a claim of so many rows takes */
function setup(msOf: (rows: number) => number) {
  const clock = new ManualClock();
  const { log, lines } = recordingLog();
  const store = new (class extends ScriptedOutbox {
    override async claim(request: ClaimRequest): Promise<ClaimResult> {
      clock.advance(msOf(request.limit));
      return await super.claim(request);
    }
  })();
  const claims = new Claims({
    store,
    newToken: () => randomUUID() as ClaimToken,
    claimTimeoutMs: 300_000,
    clock,
    random: () => 0,
    metrics: silentMetrics,
    log,
    wait: async () => {},
  });
  return { claims, store, lines, limits: () => store.claims.map(({ limit }) => limit) };
}

test("after slow claims the next ones take fewer rows, down to one, and as many again once they are fast", async () => {
  let msARow = 1000;
  const { claims, lines, limits } = setup((rows) => rows * msARow);
  for (let n = 0; n < 5; n += 1) await claims.make(500, undefined);
  expect(limits()).toEqual([500, 62, 7, 1, 1]);
  expect(lines.filter(({ level }) => level === "warn").map(({ fields }) => fields.nextRows)).toEqual([62, 7, 1]);

  msARow = 0;
  for (let n = 0; n < 5; n += 1) await claims.make(500, undefined);
  expect(limits().slice(5)).toEqual([1, 8, 64, 500, 500]);
});

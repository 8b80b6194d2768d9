import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { failOnLeaks } from "../support/leaks.ts";
import { type FaultKind, type Plan, plans, plansOfBreaker, plansOfIllness } from "./poller/plan.ts";
import { World } from "./poller/world.ts";
import { beginningWithin, settings } from "./settings.ts";

failOnLeaks();

const RUNS = 30;
const LIMIT_MS = 45_000;

const WITHOUT_OPERATOR = {
  received: 0,
  lists: 0,
  fleetFactor: 1,
  unrouted: 0,
  parking: undefined,
  retryAfter: { share: 0, ms: 0 },
};

/** Claims for one destination returned rows of a key that waited for another one, which were given back and claimed again for as long as that hung. */
const ROWS_BEHIND_A_KEY_THAT_HANGS: Plan = {
  ...WITHOUT_OPERATOR,
  ...{ seed: 0, replicas: 1, rows: 30, destinations: 5, keys: 3, batchSize: 1, concurrency: 2 },
  ...{ databaseMs: 1, deliveryMs: 184, arrivingMs: 754, refused: 0, retryMs: 1, faults: [] },
  ...{ outage: { fromMs: 0, lengthMs: 0 }, pause: { fromMs: 0, lengthMs: 0 } },
  illnesses: [{ kind: "hangs", fromMs: 0, lengthMs: 1 }],
  limits: {
    circuitBreaker: { failureRatio: 0.1, minimumAttempts: 1, windowMs: 1000, openMs: 200, maxOpenMs: 3000 },
  },
};

const CALM = {
  ...WITHOUT_OPERATOR,
  ...{ seed: 0, replicas: 1, databaseMs: 1, deliveryMs: 1, refused: 0, retryMs: 1, faults: [] },
  ...{ outage: { fromMs: 0, lengthMs: 0 }, pause: { fromMs: 0, lengthMs: 0 } },
};

/**
 * Rows of one key came by a usual claim for another destination, moved on to a destination with few places to wait, were given back, and came by the next usual
 * claim.
 */
const ROWS_THAT_MOVE_ON: Plan = {
  ...CALM,
  ...{ rows: 47, destinations: 2, keys: 1, batchSize: 14, concurrency: 2, databaseMs: 3, arrivingMs: 1, refused: 0.05 },
  illnesses: [],
  limits: { concurrency: 1, rateLimit: { perSecond: 50, burst: 50 }, circuitBreaker: undefined },
};

/** Rows behind the rows of a concurrent claim filled up the usual claim, each time. */
const CLAIM_FULL_OF_HELD_BACK_ROWS: Plan = {
  ...CALM,
  ...{ rows: 130, destinations: 3, keys: 9, batchSize: 3, concurrency: 4, arrivingMs: 0 },
  illnesses: [{ kind: "refuses", fromMs: 0, lengthMs: Number.POSITIVE_INFINITY }],
  limits: {},
};

/** Claims for the unhealthy destination took the first rows of both keys at each pass, just before the usual claim, which found nothing but rows behind these. */
const USUAL_CLAIM_BEHIND_OTHERS: Plan = {
  ...CALM,
  ...{ replicas: 2, rows: 45, destinations: 2, keys: 2, batchSize: 1, concurrency: 2, arrivingMs: 1657 },
  illnesses: [{ kind: "refuses", fromMs: 0, lengthMs: Number.POSITIVE_INFINITY }],
  limits: {},
};

/** The queue of the destination that hangs was read first, and its first row, behind the one in delivery, filled each claim. */
const ROW_BEHIND_ONE_THAT_HANGS: Plan = {
  ...{ ...CALM, seed: -1341127645, rows: 15, destinations: 3, keys: 1, batchSize: 1, concurrency: 3, arrivingMs: 35 },
  illnesses: [{ kind: "hangs", fromMs: 0, lengthMs: Number.POSITIVE_INFINITY }],
  limits: {},
};

/** Whatever happens to replicas of the poller in virtual time (`poller/world.ts`) breaks no rule. A failure prints the plan, which makes the same run again. */
async function breakNoRule(...faults: readonly FaultKind[]): Promise<void> {
  await fc.assert(
    fc.asyncProperty(
      plans(faults),
      beginningWithin(LIMIT_MS, async (plan) => {
        expect(await new World(plan).run()).toEqual([]);
      }),
    ),
    { ...settings(RUNS), examples: [[ROWS_THAT_MOVE_ON]] },
  );
}

describe("pollers", () => {
  test("deliver each row once and in the order of its key, and claim few without a delivery, however often the receiver refuses and replicas stop", async () => {
    await breakNoRule("terminate");
  }, 120_000);

  test("deliver to the others while one to three destinations hang, crawl or refuse", async () => {
    await fc.assert(
      fc.asyncProperty(
        plansOfIllness(),
        beginningWithin(LIMIT_MS, async (plan) => {
          expect(await new World(plan).runBesideIllness()).toEqual([]);
        }),
      ),
      {
        ...settings(RUNS),
        examples: [[CLAIM_FULL_OF_HELD_BACK_ROWS], [USUAL_CLAIM_BEHIND_OTHERS], [ROW_BEHIND_ONE_THAT_HANGS]],
      },
    );
  }, 120_000);

  test("send one probe at a time to each destination that is unhealthy behind its breaker, and deliver everything once it is healthy", async () => {
    await fc.assert(
      fc.asyncProperty(
        plansOfBreaker(),
        beginningWithin(LIMIT_MS, async (plan) => {
          expect(await new World(plan).run()).toEqual([]);
        }),
      ),
      { ...settings(RUNS), examples: [[ROWS_BEHIND_A_KEY_THAT_HANGS]] },
    );
  }, 120_000);

  test("deliver each row and keep the order of each key while replicas are killed, stopped, suspended and cut off", async () => {
    await breakNoRule("kill", "terminate", "pause", "cut", "held");
  }, 120_000);
});

import { randomUUID } from "node:crypto";
import type { Delivery } from "../../../../src/core/delivery/deliver.ts";
import { Poller, type PollerOptions } from "../../../../src/core/delivery/poller.ts";
import type { ClaimedRow, ClaimToken, Outcome } from "../../../../src/model/rows.ts";
import { delivered, gatesOf } from "../../../support/gates.ts";
import { settle as turns } from "../../../support/manualTime.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../../support/recorders.ts";
import { NO_LISTS, ScriptedOutbox } from "../../../support/scriptedOutbox.ts";

type Deliver = (row: ClaimedRow, signal: AbortSignal) => Promise<Outcome>;

export const sent = (row: ClaimedRow): Outcome => ({ id: row.id, claimToken: row.claimToken, kind: "sent" });
export const retry = (row: ClaimedRow): Outcome => ({
  id: row.id,
  claimToken: row.claimToken,
  kind: "retry",
  delayMs: 1000,
  reason: "status 500",
});
export const release = (row: ClaimedRow): Outcome => ({ id: row.id, claimToken: row.claimToken, kind: "release" });

interface Setup extends Partial<PollerOptions> {
  readonly clock?: ManualClock;
  readonly destinationOf?: Delivery["destinationOf"];
}

/** A poller over a scripted outbox, whose waits are ended by hand. */
export function setup(deliver: Deliver, options: Setup = {}) {
  const { clock = new ManualClock(), destinationOf = () => "receiver", ...overrides } = options;
  const store = new ScriptedOutbox();
  const { metrics, calls } = recordingMetrics();
  const { log } = recordingLog();
  const waits: (() => void)[] = [];
  let wakes = 0;
  const poller = new Poller({
    store,
    delivery: {
      destinationOf,
      routing: { destinationOf: () => undefined, listOf: () => undefined, hash: "" },
      deliver: async (row, signal) => delivered(await deliver(row, signal)),
    },
    expansion: NO_LISTS,
    gates: gatesOf({ clock }),
    newToken: () => randomUUID() as ClaimToken,
    batchSize: 100,
    concurrency: 8,
    claimTimeoutMs: 300_000,
    pollIntervalMs: 100,
    onMayClaim: () => {
      wakes += 1;
    },
    destinations: ["receiver"],
    clock,
    random: () => 0,
    metrics,
    log,
    wait: () => new Promise((resolve) => waits.push(resolve)),
    ...overrides,
  });
  return { store, clock, calls, poller, waits, wakes: () => wakes };
}

export const settleDown = (): Promise<void> => turns(10);

/** A delivery that each test ends by hand. */
export function heldDeliveries() {
  const begun: { row: ClaimedRow; signal: AbortSignal; end: (outcome: Outcome) => void }[] = [];
  const deliver: Deliver = (row, signal) => new Promise((end) => begun.push({ row, signal, end }));
  return { begun, deliver };
}

/** Claims of a store wait from now on. @returns ends the wait of the last one */
export function holdClaims(store: ScriptedOutbox): () => void {
  const claim = store.claim.bind(store);
  let answer = (): void => {};
  store.claim = async (request) => {
    await new Promise<void>((resolve) => {
      answer = resolve;
    });
    return await claim(request);
  };
  return () => answer();
}

export const never = new AbortController().signal;

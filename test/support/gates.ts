import type { DeliveryResult } from "../../src/core/delivery/deliver.ts";
import { HEALTHY, NOT_ASKED } from "../../src/core/destinations/breaker.ts";
import { DestinationGates, type DestinationGatesOptions } from "../../src/core/destinations/gates.ts";
import type { ClaimToken, Outcome } from "../../src/model/rows.ts";
import type { DestinationStore } from "../../src/ports/destinationStore.ts";
import { ManualClock, silentLog, silentMetrics } from "./recorders.ts";

/** The store of a database without the table of destinations: nothing of it may be called. */
export const NO_DESTINATION_STORE: DestinationStore = new Proxy({ isAvailable: false } as DestinationStore, {
  get: (_, name) => {
    if (name === "isAvailable") return false;
    throw new Error(`${String(name)} was called of a store that is not available`);
  },
});

/** Gates of destinations without limits, unless told otherwise. */
export function gatesOf(options: Partial<DestinationGatesOptions> = {}): DestinationGates {
  return new DestinationGates({
    limits: {},
    concurrency: 8,
    store: NO_DESTINATION_STORE,
    newToken: () => "probe" as ClaimToken,
    clock: new ManualClock(),
    timer: () => () => {},
    random: () => 0,
    metrics: silentMetrics,
    log: silentLog,
    ...options,
  });
}

/** A delivery that ended so, and told of its receiver what such an end tells. */
export function delivered(outcome: Outcome): DeliveryResult {
  if (outcome.kind === "sent") return { outcome, report: HEALTHY };
  return { outcome, report: outcome.kind === "retry" ? { receiver: "failed" } : NOT_ASKED };
}

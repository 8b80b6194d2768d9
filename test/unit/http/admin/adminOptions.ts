import type { DestinationControl } from "../../../../src/core/destinations/control.ts";
import type { MessageActions } from "../../../../src/core/finished/messageActions.ts";
import type { ReplayJobs } from "../../../../src/core/finished/replayJobs.ts";
import type { Overview } from "../../../../src/core/operations/overview.ts";
import { createHeavyReads } from "../../../../src/http/admin/heavyReads.ts";
import type { adminRoutes } from "../../../../src/http/admin/routes.ts";
import type { Log } from "../../../../src/ports/runtime.ts";
import { ManualClock } from "../../../support/recorders.ts";
import { bodyLimits } from "../harness.ts";

/** What the admin routes need, without a database: nothing is there, and nothing happens. */
export function adminOptions(log: Log): Parameters<typeof adminRoutes>[0] {
  return {
    admin: { insecure: true, showPayloads: false, maxTransformTimeoutMs: 100 },
    limits: bodyLimits(200),
    evaluator: { evaluate: () => Promise.reject(new Error("nothing is evaluated here")) },
    replay: { run: async () => ({ moved: 0 }) },
    run: (change) => change(new AbortController().signal),
    destinations: { names: ["shop", "audit"] } as unknown as DestinationControl,
    parked: { list: async () => [], retry: async () => ({ changed: 0 }), discard: async () => ({ changed: 0 }) },
    jobs: {} as ReplayJobs,
    messages: {} as MessageActions,
    overview: {} as Overview,
    show: (answer) => answer,
    operations: { audit: async () => [] },
    trace: { list: async () => ({ messages: [], cursor: null }), timeline: async () => undefined },
    events: { follow: () => {} },
    heavyReads: createHeavyReads(new ManualClock()),
    configText: "",
    clock: new ManualClock(),
    log,
  };
}

import type { Operations } from "../../../../src/core/operations/operations.ts";
import { createHeavyReads } from "../../../../src/http/admin/operation.ts";
import type { adminRoutes } from "../../../../src/http/admin/routes.ts";
import type { Log } from "../../../../src/ports/runtime.ts";
import { ManualClock } from "../../../support/recorders.ts";
import { bodyLimits } from "../harness.ts";

/** What the admin routes need, without a database: nothing is there, and nothing happens. */
export function adminOptions(log: Log): Parameters<typeof adminRoutes>[0] {
  const operations = {
    replay: { run: async () => ({ moved: 0 }) },
    destinations: { names: ["shop", "audit"] },
    parked: { list: async () => [], retry: async () => ({ changed: 0 }), discard: async () => ({ changed: 0 }) },
    trace: { list: async () => ({ messages: [], cursor: null }), timeline: async () => undefined },
    show: (answer: unknown) => answer,
  } as unknown as Operations;
  return {
    ...operations,
    admin: { insecure: true, showPayloads: false, maxTransformTimeoutMs: 100 },
    limits: bodyLimits(200),
    evaluator: { evaluate: () => Promise.reject(new Error("nothing is evaluated here")) },
    run: (change) => change(new AbortController().signal),
    operations: { audit: async () => [] },
    events: { follow: () => {} },
    heavyReads: createHeavyReads(new ManualClock()),
    configText: "",
    clock: new ManualClock(),
    log,
  };
}

import { Router } from "express";
import type { Evaluator } from "../../ports/evaluator.ts";
import type { Clock, Log } from "../../ports/runtime.ts";
import { ROUTER_OPTIONS } from "../rootRoute.ts";
import { transformTest } from "./evaluate.ts";
import { createGate, type GateOptions } from "./gate.ts";
import { type ReplayRouteOptions, replayRoute } from "./replay.ts";

export interface AdminRouteOptions {
  /** Section `admin`. */
  readonly admin: GateOptions["admin"] & { readonly maxTransformTimeoutMs: number };
  readonly limits: GateOptions["limits"];
  readonly evaluator: Pick<Evaluator, "evaluate">;
  readonly replay: Omit<ReplayRouteOptions, "gate">;
  readonly clock: Pick<Clock, "now">;
  readonly log: Log;
}

/**
 * `POST /admin/transform/test` and `POST /admin/replay`.
 *
 * @throws ConfigError when `admin.auth` is missing and not waived by `admin.insecure`, or unusable
 */
export function adminRoutes({ admin, limits, evaluator, replay, clock, log }: AdminRouteOptions): Router {
  const gate = createGate({ admin, limits, clock, log });
  const router = Router(ROUTER_OPTIONS);
  const testTransform = transformTest({ gate, evaluator, maxTimeoutMs: admin.maxTransformTimeoutMs, clock });
  router.post("/admin/transform/test", testTransform);
  router.post("/admin/replay", replayRoute({ gate, ...replay }));
  return router;
}

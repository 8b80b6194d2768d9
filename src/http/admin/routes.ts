import { Router } from "express";
import type { Evaluator } from "../../ports/evaluator.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { ROUTER_OPTIONS } from "../rootRoute.ts";
import {
  type DestinationRouteOptions,
  listDestinationsRoute,
  pauseDestinationRoute,
  resumeDestinationRoute,
} from "./destinations.ts";
import { transformTest } from "./evaluate.ts";
import { createGate, type GateOptions } from "./gate.ts";
import { type ParkedRouteOptions, parkedRoutes } from "./parked.ts";
import { type ReplayRouteOptions, replayRoute } from "./replay.ts";

export interface AdminRouteOptions {
  /** Section `admin`. */
  readonly admin: GateOptions["admin"] & { readonly maxTransformTimeoutMs: number };
  readonly limits: GateOptions["limits"];
  readonly evaluator: Pick<Evaluator, "evaluate">;
  readonly replay: Omit<ReplayRouteOptions, "gate">;
  readonly destinations: DestinationRouteOptions["control"];
  readonly parked: ParkedRouteOptions;
  readonly clock: Pick<Clock, "now">;
  readonly log: Log;
}

/**
/**
 * `POST /admin/transform/test`, `POST /admin/replay`, and the routes of parked rows and of destinations.
 *
 * @throws ConfigError when `admin.auth` is missing and not waived by `admin.insecure`, or unusable
 */
export function adminRoutes(options: AdminRouteOptions): Router {
  const { admin, limits, evaluator, replay, parked, destinations, clock, log } = options;
  const gate = createGate({ admin, limits, clock, log });
  const router = Router(ROUTER_OPTIONS);
  const testTransform = transformTest({ gate, evaluator, maxTimeoutMs: admin.maxTransformTimeoutMs, clock });
  router.post("/admin/transform/test", testTransform);
  router.post("/admin/replay", replayRoute({ gate, ...replay }));
  const control = { gate, control: destinations };
  router.get("/admin/destinations", listDestinationsRoute(control));
  router.post("/admin/destinations/:name/pause", pauseDestinationRoute(control));
  router.post("/admin/destinations/:name/resume", resumeDestinationRoute(control));
  const { list, retry, discard } = parkedRoutes(gate, parked);
  router.get("/admin/parked", list);
  router.post("/admin/parked/retry", retry);
  router.post("/admin/parked/discard", discard);
  return router;
}

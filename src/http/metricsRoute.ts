import { Router } from "express";
import { send } from "./respond.ts";
import { ROUTER_OPTIONS } from "./rootRoute.ts";

const PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8";

/**
 * `GET /metrics`.
 *
 * @param render gives all metrics in the Prometheus text format
 */
export function metricsRoute(render: () => Promise<string>): Router {
  const router = Router(ROUTER_OPTIONS);
  router.get("/metrics", async (_req, res) => send(res, 200, PROMETHEUS_TEXT, await render()));
  return router;
}

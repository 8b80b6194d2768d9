import { Router } from "express";
import { type Health, LIVENESS } from "../core/health.ts";
import { sendJson } from "./respond.ts";
import { ROUTER_OPTIONS } from "./rootRoute.ts";

/** `GET /health/live`, `GET /health/ready` and its alias `GET /health`. */
export function healthRoutes(health: Pick<Health, "readiness">): Router {
  const router = Router(ROUTER_OPTIONS);
  router.get("/health/live", (_req, res) => sendJson(res, 200, LIVENESS));
  router.get(["/health/ready", "/health"], async (_req, res) => {
    const { ready, body } = await health.readiness();
    sendJson(res, ready ? 200 : 503, body);
  });
  return router;
}

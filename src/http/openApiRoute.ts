import { Router } from "express";
import type { OpenApiDocument } from "./openapi/types.ts";
import { JSON_TYPE, send } from "./respond.ts";
import { ROUTER_OPTIONS } from "./rootRoute.ts";

/** `GET /openapi.json`. */
export function openApiRoute(document: OpenApiDocument): Router {
  const text = JSON.stringify(document);
  const router = Router(ROUTER_OPTIONS);
  router.get("/openapi.json", (_req, res) => send(res, 200, JSON_TYPE, text));
  return router;
}

import { Router } from "express";
import { send, TEXT_TYPE } from "./respond.ts";

/** `GET /`: says that the server runs, and checks nothing. */
export function rootRoute(): Router {
  const router = Router(ROUTER_OPTIONS);
  router.get("/", (_req, res) => send(res, 200, TEXT_TYPE, "Service is running!"));
  return router;
}

/** Paths mean what they say: `/Health` and `/health/` are not `/health`. */
export const ROUTER_OPTIONS = { caseSensitive: true, strict: true } as const;

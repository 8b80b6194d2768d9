import type { Router } from "express";
import type { Health } from "../src/core/health.ts";
import { healthRoutes } from "../src/http/healthRoutes.ts";
import { metricsRoute } from "../src/http/metricsRoute.ts";
import { openApiRoute } from "../src/http/openApiRoute.ts";
import { openApiDocument } from "../src/http/openapi/document.ts";
import type { ServedApi } from "../src/http/openapi/served.ts";
import type { RoleParts } from "./context.ts";

interface OperatorRouteOptions {
  readonly health: Pick<Health, "readiness">;
  /** Gives all metrics in the Prometheus text format. */
  readonly metrics: () => Promise<string>;
  readonly parts: readonly RoleParts[];
  /** What the document describes of this process. */
  readonly served: ServedApi;
}

/** Every route of the operator's side: those of the roles, and those that each process has. */
export function operatorRoutes({ health, metrics, parts, served }: OperatorRouteOptions): readonly Router[] {
  return [
    healthRoutes(health),
    metricsRoute(async () => {
      // A scrape renews `svc_component_up`, so that alerts need no probes.
      await health.readiness();
      return await metrics();
    }),
    ...parts.flatMap((part) => part.operatorRoutes ?? []),
    openApiRoute(openApiDocument(served)),
  ];
}

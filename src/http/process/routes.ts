import type { Health } from "../../core/health.ts";
import type { DocumentOptions } from "../openapi/document.ts";
import type { Route } from "../routes.ts";
import { document } from "./document.ts";
import { live } from "./live.ts";
import { metrics } from "./metrics.ts";
import { ready } from "./ready.ts";
import { root } from "./root.ts";

interface ProcessOptions {
  readonly health: Pick<Health, "readiness">;
  /** Gives all metrics in the Prometheus text format. */
  readonly metrics: () => Promise<string>;
  readonly document: DocumentOptions;
}

/**
 * All routes of a process.
 *
 * @param roleRoutes those of its roles
 * @returns these, and those that every process has: `/`, health, metrics and the OpenAPI document of all of them
 */
export function processRoutes(roleRoutes: readonly Route[], options: ProcessOptions): readonly Route[] {
  const { health } = options;
  const own = [root, live, ready("health_ready", health), ready("health", health), metrics(health, options.metrics)];
  const routes = [...roleRoutes, ...own];
  return [...routes, document(routes, options.document)];
}

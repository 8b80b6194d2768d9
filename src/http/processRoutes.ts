import { type Health, LIVENESS } from "../core/health.ts";
import { JSON_TYPE, send, sendJson, TEXT_TYPE } from "./exchange.ts";
import { json, plain } from "./openapi/answers.ts";
import { type DocumentOptions, openApiDocument } from "./openapi/document.ts";
import { type Route, type RouteHandler, route } from "./routes.ts";

const PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8";
const RUNNING = "Service is running!";

interface ProcessRouteOptions {
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
export function processRoutes(roleRoutes: readonly Route[], options: ProcessRouteOptions): readonly Route[] {
  const { health, metrics } = options;
  const readiness: RouteHandler = async (_req, res) => {
    const { ready, body } = await health.readiness();
    sendJson(res, ready ? 200 : 503, body);
  };
  const routes: readonly Route[] = [
    ...roleRoutes,
    route("root", ROOT, async (_req, res) => send(res, 200, TEXT_TYPE, RUNNING)),
    route("health_live", LIVE, async (_req, res) => sendJson(res, 200, LIVENESS)),
    route("health_ready", READY, readiness),
    route("health", READY, readiness),
    route("metrics", METRICS, async (_req, res) => {
      // Each scrape renews `svc_component_up`, so that alerts need no further probe.
      await health.readiness();
      send(res, 200, PROMETHEUS_TEXT, await metrics());
    }),
    route("openapi", DOCUMENT, async (_req, res) => send(res, 200, JSON_TYPE, document)),
  ];
  const document = JSON.stringify(openApiDocument(routes, options.document));
  return routes;
}

const ROOT = {
  summary: "Show that the service runs",
  description: "Checks nothing.",
  answers: [plain("The service runs.", TEXT_TYPE, { const: RUNNING })],
};

const LIVE = {
  summary: "Show that the process is alive",
  description: "For a liveness probe. Touches no dependency, so that an unreachable database restarts nothing.",
  answers: [json(200, "The process answers.", "Liveness", LIVENESS)],
};

const readinessBody = (status: string, database: string) => ({
  status,
  components: { database: { status: database } },
});

const READY = {
  summary: "Check the components of this process",
  description:
    "For a readiness probe. Each check may take 3 seconds; one that has not finished by then counts as `down`. " +
    "`/health` and `/health/ready` are the same. The log has the details.",
  answers: [
    json(200, "Every component that decides readiness is up.", "Readiness", readinessBody("healthy", "up")),
    json(503, "A component that decides readiness is down.", "Readiness", readinessBody("unhealthy", "down")),
  ],
};

const METRICS = {
  summary: "The metrics of this process",
  description: "Prometheus text format. Without credentials: keep it on an internal network.",
  answers: [plain("Every metric.", PROMETHEUS_TEXT)],
};

const DOCUMENT = {
  summary: "This document",
  description: "OpenAPI 3.1, generated from the configuration and the roles of this process.",
  answers: [
    plain("The document.", "application/json", {
      type: "object",
      required: ["openapi", "info", "paths"],
      properties: { openapi: { const: "3.1.0" }, info: { type: "object" }, paths: { type: "object" } },
    }),
  ],
};

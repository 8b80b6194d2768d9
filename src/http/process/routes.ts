import { type Health, LIVENESS } from "../../core/health.ts";
import { named, object } from "../../model/described.ts";
import { JSON_TYPE, send, sendJson, TEXT_TYPE } from "../exchange.ts";
import { json, plain } from "../openapi/answers.ts";
import { type DocumentOptions, openApiDocument } from "../openapi/document.ts";
import { type HttpRoute, httpRoute } from "../routes.ts";

const RUNNING = "Service is running!";

const root = httpRoute(
  "root",
  {
    summary: "Show that the service runs",
    description: "Checks nothing.",
    answers: [plain("The service runs.", TEXT_TYPE, { const: RUNNING })],
  },
  async (_req, res) => send(res, 200, TEXT_TYPE, RUNNING),
);

const LIVENESS_SCHEMA = named(
  "Liveness",
  object({
    status: { const: "healthy" },
    components: object({ process: object({ status: { const: "up" } }) }),
  }),
);

const live = httpRoute(
  "health_live",
  {
    summary: "Show that the process is alive",
    description: "For a liveness probe. Touches no dependency, so that an unreachable database restarts nothing.",
    answers: [json(200, "The process answers.", LIVENESS_SCHEMA, LIVENESS)],
  },
  async (_req, res) => sendJson(res, 200, LIVENESS),
);

const READINESS_SCHEMA = named(
  "Readiness",
  object({
    status: { enum: ["healthy", "unhealthy"] },
    components: {
      type: "object",
      description: "Every component of this process by name.",
      additionalProperties: object({ status: { enum: ["up", "down"] } }),
    },
  }),
);

const example = (status: string, database: string) => ({ status, components: { database: { status: database } } });

/** `GET /health` and `GET /health/ready`, which are the same. */
const ready = (id: "health" | "health_ready", health: Pick<Health, "readiness">) =>
  httpRoute(
    id,
    {
      summary: "Check the components of this process",
      description:
        "For a readiness probe. Each check may take 3 seconds; a check that has not finished by then is `down`. " +
        "`/health` and `/health/ready` are the same. The log has the details.",
      answers: [
        json(200, "Every component that decides readiness is up.", READINESS_SCHEMA, example("healthy", "up")),
        json(503, "A component that decides readiness is down.", READINESS_SCHEMA, example("unhealthy", "down")),
      ],
    },
    async (_req, res) => {
      const { ready, body } = await health.readiness();
      sendJson(res, ready ? 200 : 503, body);
    },
  );

const PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8";

const metrics = (health: Pick<Health, "readiness">, read: ProcessOptions["metrics"]) =>
  httpRoute(
    "metrics",
    {
      summary: "The metrics of this process",
      description: "Prometheus text format. Without credentials: keep it on an internal network.",
      answers: [plain("Every metric.", PROMETHEUS_TEXT)],
    },
    async (req, res) => {
      // Each scrape renews `svc_component_up`, so that alerts need no further probe.
      await health.readiness();
      const { type = PROMETHEUS_TEXT, text } = await read(req.headers.accept);
      send(res, 200, type, text);
    },
  );

/** `GET /openapi.json`, which describes itself too. @param others all other routes of the process */
function document(others: readonly HttpRoute[], options: DocumentOptions): HttpRoute {
  const own: HttpRoute = httpRoute(
    "openapi",
    {
      summary: "This document",
      description: "OpenAPI 3.1, generated from the configuration and the roles of this process.",
      answers: [
        plain("The document.", "application/json", {
          type: "object",
          required: ["openapi", "info", "paths"],
          properties: { openapi: { const: "3.1.0" }, info: { type: "object" }, paths: { type: "object" } },
        }),
      ],
    },
    async (_req, res) => send(res, 200, JSON_TYPE, text),
  );
  const text = JSON.stringify(openApiDocument([...others, own], options));
  return own;
}

interface ProcessOptions {
  readonly health: Pick<Health, "readiness">;
  /** Gives all metrics, in the Prometheus text format unless it names another type. @param accept of the request */
  readonly metrics: (accept: string | undefined) => Promise<{ readonly type?: string; readonly text: string }>;
  readonly document: DocumentOptions;
}

/** All routes of a process: those of its roles, and `/`, health, metrics and the OpenAPI document of all of them. */
export function processRoutes(roleRoutes: readonly HttpRoute[], options: ProcessOptions): readonly HttpRoute[] {
  const { health } = options;
  const own = [root, live, ready("health_ready", health), ready("health", health), metrics(health, options.metrics)];
  const routes = [...roleRoutes, ...own];
  return [...routes, document(routes, options.document)];
}

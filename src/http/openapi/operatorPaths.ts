import { type Answer, json, responses, text } from "./responses.ts";
import { ref } from "./schemas.ts";
import type { Operation } from "./types.ts";

/** The routes that every process has, whatever its roles. `common`: what every route of their port may answer. */

export const rootOperation = (common: readonly Answer[]): Operation => ({
  operationId: "root",
  tags: ["operation"],
  summary: "Say that the service runs",
  description: "Checks nothing.",
  responses: responses([
    text(200, "The service runs.", "text/plain; charset=utf-8", { const: "Service is running!" }),
    ...common,
  ]),
  security: [],
});

export const livenessOperation = (common: readonly Answer[]): Operation => ({
  operationId: "health_live",
  tags: ["operation"],
  summary: "Say that the process lives",
  description: "For a liveness probe. Touches no dependency, so that a database that is away restarts nothing.",
  responses: responses([
    json(200, "The process answers.", ref("Liveness"), {
      status: "healthy",
      components: { process: { status: "up" } },
    }),
    ...common,
  ]),
  security: [],
});

export const readinessOperation = (operationId: string, common: readonly Answer[]): Operation => ({
  operationId,
  tags: ["operation"],
  summary: "Check the components of this process",
  description:
    "For a readiness probe. Each check may take 3 seconds; one that has not answered by then counts as `down`. " +
    "`/health` and `/health/ready` are the same. What is wrong with a component stands in the log.",
  responses: responses([
    json(200, "Every component that decides readiness is up.", ref("Readiness"), readiness("healthy", "up")),
    json(503, "A component that decides readiness is down.", ref("Readiness"), readiness("unhealthy", "down")),
    ...common,
  ]),
  security: [],
});

const readiness = (status: string, database: string) => ({ status, components: { database: { status: database } } });

export const metricsOperation = (common: readonly Answer[]): Operation => ({
  operationId: "metrics",
  tags: ["operation"],
  summary: "The metrics of this process",
  description: "Prometheus text format. Without credentials: keep it on an internal network.",
  responses: responses([
    text(200, "Every metric.", "text/plain; version=0.0.4; charset=utf-8", { type: "string" }),
    ...common,
  ]),
  security: [],
});

const DOCUMENT = {
  type: "object",
  required: ["openapi", "info", "paths"],
  properties: { openapi: { const: "3.1.0" }, info: { type: "object" }, paths: { type: "object" } },
};

export const openApiOperation = (common: readonly Answer[]): Operation => ({
  operationId: "openapi",
  tags: ["operation"],
  summary: "This document",
  description: "OpenAPI 3.1, made from the configuration and the roles of this very process.",
  responses: responses([
    [
      200,
      {
        description: "The document.",
        content: { "application/json": { schema: DOCUMENT } },
      },
    ],
    ...common,
  ]),
  security: [],
});

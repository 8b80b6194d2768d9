import { Ajv } from "ajv";
import type { Manifest } from "./manifests.ts";

/**
 * The parts of KEDA's, the Gateway API's and the Prometheus operator's resources that the chart uses. Their own schemas come with those; these hold what is required
 * there, and that the chart writes no key that has no meaning.
 */

const text = { type: "string", minLength: 1 };
const texts = { type: "object", additionalProperties: { type: "string" } };
const seconds = { type: "string", pattern: "^[0-9]+(ms|s|m|h)$" };
const count = { type: "integer", minimum: 1 };
const list = (items: object) => ({ type: "array", minItems: 1, items });
const only = (properties: Readonly<Record<string, object>>, required: readonly string[] = Object.keys(properties)) => ({
  type: "object",
  properties,
  required,
  additionalProperties: false,
});

const SPECS: Readonly<Record<string, object>> = {
  "keda.sh/v1alpha1 ScaledObject": only(
    {
      scaleTargetRef: only({ name: text }),
      minReplicaCount: count,
      maxReplicaCount: count,
      pollingInterval: count,
      advanced: only({ horizontalPodAutoscalerConfig: only({ behavior: { type: "object" } }) }),
      triggers: list({
        type: "object",
        properties: { type: text, metadata: texts, metricType: { enum: ["AverageValue", "Value"] } },
        required: ["type", "metadata"],
        if: { properties: { type: { const: "prometheus" } } },
        // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
        then: {
          properties: {
            metadata: only({ serverAddress: text, query: text, threshold: { type: "string", pattern: "^[0-9]+$" } }),
          },
        },
      }),
    },
    ["scaleTargetRef", "minReplicaCount", "maxReplicaCount", "triggers"],
  ),
  "gateway.networking.k8s.io/v1 HTTPRoute": only({
    parentRefs: list(only({ name: text, namespace: text, sectionName: text }, ["name"])),
    hostnames: list(text),
    rules: list(
      only({
        matches: list(only({ path: only({ type: { const: "PathPrefix" }, value: text }) })),
        backendRefs: list(only({ name: text, port: count })),
      }),
    ),
  }),
  "monitoring.coreos.com/v1 ServiceMonitor": only({
    selector: only({ matchLabels: texts }),
    namespaceSelector: only({ matchNames: list(text) }),
    podTargetLabels: list(text),
    endpoints: list(
      only(
        {
          port: text,
          path: { const: "/metrics" },
          interval: seconds,
          scrapeTimeout: seconds,
          relabelings: { type: "array" },
          metricRelabelings: { type: "array" },
        },
        ["port", "path", "interval", "scrapeTimeout"],
      ),
    ),
  }),
  "monitoring.coreos.com/v1 PrometheusRule": only({
    groups: {
      type: "array",
      items: only(
        {
          name: text,
          interval: seconds,
          rules: list(
            only(
              {
                alert: text,
                record: text,
                expr: text,
                for: seconds,
                keep_firing_for: seconds,
                labels: texts,
                annotations: texts,
              },
              ["expr"],
            ),
          ),
        },
        ["name", "rules"],
      ),
    },
  }),
};

const ajv = new Ajv({ allErrors: true, strict: false });
const CHECKS = new Map(Object.entries(SPECS).map(([type, schema]) => [type, ajv.compile(schema)]));

/** Whether an object is of a kind that an operator brings, rather than Kubernetes itself. */
export function isCustomResource({ apiVersion }: Manifest): boolean {
  return apiVersion.includes(".") && (apiVersion.startsWith("gateway.") || !apiVersion.includes(".k8s.io/"));
}

/** What is wrong with such an object; empty when nothing is. */
export function customResourceFaults({ apiVersion, kind, metadata, spec }: Manifest): string[] {
  const type = `${apiVersion} ${kind}`;
  const check = CHECKS.get(type);
  if (check === undefined) return [`${type} is not known here`];
  if (check(spec)) return [];
  return (check.errors ?? []).map(
    ({ instancePath, message }) => `${type} ${metadata.name}: spec${instancePath} ${message}`,
  );
}

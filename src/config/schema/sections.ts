import { inboundAuthSchema } from "../../adapters/sources/http/schema.ts";
import { block, boolean, duration, integer, list, ms, section, text } from "../../model/schema.ts";
import { conditionSchema, transformSchema } from "./blocks.ts";

/** The small sections (spec, "server", "http", "admin", "routes", "retention"). */

export const serverSchema = section("The HTTP servers (without TLS).", {
  httpPort: integer("Data port.", { minimum: 1, maximum: 65535, default: 8080 }),
  managementPort: integer("Separate port for health, metrics and admin.", {
    minimum: 1,
    maximum: 65535,
  }),
  host: text("Address of the data port.", {
    syntax: "bindAddress",
    defaultText: "every address of the machine",
  }),
  managementHost: text("Address of the management port.", { syntax: "bindAddress", defaultText: "`server.host`" }),
  requestTimeoutMs: ms("Longest time to receive a request; then 408.", {
    minimum: 1000,
    default: 60000,
  }),
  maxConnections: integer("Most connections per port; others are closed.", { minimum: 1, default: 4096 }),
  maxBufferedBodyBytes: integer(
    "Memory for unfinished request bodies above 16 KiB; beyond it [503](security.md#ports).",
    { minimum: 1, default: 67108864 },
  ),
});

export const httpSchema = section("All HTTP destinations.", {
  maxErrorBodyBytes: integer("Most bytes kept of a failed response's body.", { minimum: 0, default: 2048 }),
  blockPrivateAddresses: boolean(
    "Refuse a `baseUrl` or `tokenUrl` that resolves to a [private address](security.md#where-deliveries-may-go).",
    { default: false },
  ),
});

export const adminSchema = section("The admin routes.", {
  enabled: boolean("Serve the [admin routes](http-api.md#trying-a-transform).", { default: false }),
  auth: {
    ...inboundAuthSchema,
    description: "Credentials of callers; required if `enabled`, unless `insecure`.",
  },
  insecure: boolean("Allow admin routes without `auth` (local tests only).", { default: false }),
  console: boolean("Serve the console at `/console`; needs `enabled`.", { default: false }),
  maxTransformTimeoutMs: ms("Upper limit of a caller's `timeoutMs`.", { minimum: 0, default: 1000 }),
  maxPayloadBytes: integer("Largest admin request body.", { minimum: 1, default: 65536 }),
  showPayloads: boolean("Show payloads and headers in `GET /admin/messages/{id}`.", { default: false }),
  redactPayloadPaths: list(
    "JSONPaths of payload fields [hidden from operators](trace.md#what-operators-see).",
    { type: "string", syntax: "jsonPath" },
    { default: [] },
  ),
});

export const tracingSchema = section("[OpenTelemetry traces](tracing.md); `OTEL_*` variables set where they go.", {
  enabled: boolean("Send spans over OTLP/HTTP.", { default: false }),
  deliveries: text(
    "A delivery is in the trace of its message (`parent`), has a trace with a `link` to it, or a `new` trace.",
    { enum: ["parent", "link", "new"], default: "parent" },
  ),
  parentMaxAgeMs: ms("With `parent`, deliveries of older messages get a link.", { minimum: 0, default: 3600000 }),
  propagate: list(
    "Trace headers that receivers get.",
    { type: "string", enum: ["traceparent", "tracestate", "baggage"] },
    { default: ["traceparent", "tracestate", "baggage"] },
  ),
  urlTemplate: text("URL with `{{ traceId }}` for the console's links.", {
    syntax: "traceUrl",
  }),
});

export const metricsSchema = section("The metrics of `GET /metrics`.", {
  openMetrics: boolean("Answer in OpenMetrics with exemplars if asked.", {
    default: false,
  }),
  deliveryBuckets: list(
    "Upper bounds in seconds of the buckets of `svc_message_delivery_duration_seconds`, ascending.",
    { type: "number", exclusiveMinimum: 0 },
    { default: [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600], minItems: 1 },
  ),
  otlp: boolean("Also push metrics over OTLP/HTTP in JSON; `OTEL_EXPORTER_OTLP_*` variables set where.", {
    default: false,
  }),
  otlpIntervalMs: ms("Time between two pushes.", { minimum: 1000, default: 60000 }),
  textfile: text("File with the metrics of `svc retention --once`, for the node exporter.", {
    syntax: "notBlank",
  }),
});

/** What a destination of a route has if the route says nothing else. */
export const TARGET_DEFAULTS = { routingKeyMissingFieldDefault: "", onExhausted: "dead" } as const;

const routingKeyTemplate = text("RabbitMQ routing key or Kafka record key; wins over the destination's template.", {
  syntax: "routingKey",
});
const MISSING_FIELD = "Replaces a placeholder's missing value.";
const routeTransform = { ...transformSchema, description: "Runs before the destination's transform." } as const;
const EXHAUSTED =
  "A row out of attempts, or refused for good, is `dead`, or with `park` [parked](operations.md#parked-rows).";
const exhaustedValues = ["dead", "park"] as const;

const listedDestination = {
  ...block("A destination of the list.", ["name"], {
    name: text("Name of a destination, once in a list."),
    when: conditionSchema,
    transform: routeTransform,
    routingKeyTemplate,
    routingKeyMissingFieldDefault: text(MISSING_FIELD, { default: TARGET_DEFAULTS.routingKeyMissingFieldDefault }),
    onExhausted: text(EXHAUSTED, { enum: exhaustedValues, default: TARGET_DEFAULTS.onExhausted }),
    maxAttempts: integer("Replaces that of the destination.", {
      minimum: 1,
      maximum: 2147483647,
      defaultText: "the destination's",
    }),
  }),
  orKey: "name",
} as const;

export const routesSchema = list(
  "The first match wins; a row without a match is dead.",
  {
    ...block("A route.", ["topicPattern"], {
      topicPattern: text(
        "Glob on the whole topic, at most 1,000 characters: `*` is any text without a dot, `**` any text.",
        {
          syntax: "topicPattern",
        },
      ),
      destination: text("Name of a destination."),
      // Their defaults are filled in later: beside a list, each of these is refused.
      routingKeyTemplate,
      routingKeyMissingFieldDefault: text(MISSING_FIELD, { defaultText: "empty" }),
      transform: routeTransform,
      onExhausted: text(EXHAUSTED, { enum: exhaustedValues, defaultText: "`dead`" }),
      destinations: list(
        "[Several](destinations.md#several-destinations) instead of `destination`. The four keys above then belong in the blocks.",
        listedDestination,
        { minItems: 1, maxItems: 1000 },
      ),
    }),
    requiredAny: ["destination", "destinations"],
  } as const,
  { default: [] },
);

const retentionKeys = {
  maxAge: duration("Age at which a row is deleted; required by `AGE`."),
  cleanupInterval: duration("Wait between two passes.", { default: "1h" }),
  batchSize: integer("Most rows per delete statement.", { minimum: 1, default: 1000 }),
} as const;

export const retentionSchema = section(
  "[Deletes](operations.md#retention) finished rows, never pending or processing ones.",
  {
    enabled: boolean("Apply the blocks below.", { default: false }),
    outbox: section("Retention of `sent` and `dead` outbox rows.", {
      policy: text("`AGE` (since `updated_at`), `COUNT` or `DISABLED`.", {
        enum: ["AGE", "COUNT", "DISABLED"],
        default: "DISABLED",
      }),
      maxCount: integer("Rows of each state to keep; required by `COUNT`.", { minimum: 1 }),
      ...retentionKeys,
    }),
    inbox: section("Retention of `processed` and `dead` inbox rows.", {
      policy: text("`AGE` (since `created_at`) or `DISABLED`.", {
        enum: ["AGE", "DISABLED"],
        default: "DISABLED",
      }),
      ...retentionKeys,
    }),
  },
);

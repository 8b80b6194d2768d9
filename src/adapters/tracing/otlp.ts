import type { SpanExporter } from "@opentelemetry/sdk-trace-base";
import { ConfigError, errorText } from "../../model/errors.ts";
import { ERROR_TYPE, SCHEMA_URL } from "../../model/spans.ts";
import { partsOf, type TraceContext } from "../../model/traceContext.ts";
import type { Log, Service } from "../../ports/runtime.ts";
import type { SpanOptions, Tracer } from "../../ports/tracer.ts";
import { waitOrAbort } from "../../time/wait.ts";

interface TracerOptions {
  readonly version: string;
  /** `service.instance.id`. */
  readonly replica: string;
  readonly env: NodeJS.ProcessEnv;
  readonly log: Log;
}

/**
 * The tracer of OpenTelemetry, which sends spans over OTLP/HTTP in protobuf. The SDK itself reads the variables of the
 * specification of OpenTelemetry ("Environment Variable Specification"): endpoint, headers, service name, resource
 * attributes, sampler, batches. A span waits for a second at most, and at most {@link QUEUE} wait: others are lost.
 *
 * @throws ConfigError without the optional packages, or when the variables ask for another protocol
 */
export async function openTracer({ version, replica, env, log }: TracerOptions): Promise<Tracer & Service> {
  const protocol = env.OTEL_EXPORTER_OTLP_TRACES_PROTOCOL || env.OTEL_EXPORTER_OTLP_PROTOCOL || PROTOCOL;
  if (protocol !== PROTOCOL) {
    const message = `found ${JSON.stringify(protocol)}, expected ${PROTOCOL}, which is the only protocol here`;
    throw new ConfigError([{ path: "OTEL_EXPORTER_OTLP_PROTOCOL", message }]);
  }
  const { api, sdk, exporter, resources } = await load();
  const { ROOT_CONTEXT, SpanKind, SpanStatusCode, TraceFlags, createTraceState, diag, DiagLogLevel, trace } = api;
  // Of what the SDK says of itself, only how many spans a full queue has lost: the rest may quote variables.
  const lost = (text: string): void => {
    if (/^Dropped \d+ spans/.test(text)) log.warn({ reason: text }, "spans were lost");
  };
  const logger = { error: NOTHING, warn: lost, info: NOTHING, debug: NOTHING, verbose: NOTHING };
  diag.setLogger(logger, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
  const kinds: Record<SpanOptions["kind"], number> = {
    server: SpanKind.SERVER,
    client: SpanKind.CLIENT,
    producer: SpanKind.PRODUCER,
    consumer: SpanKind.CONSUMER,
    internal: SpanKind.INTERNAL,
  };
  const resource = resources
    .resourceFromAttributes({ "service.name": "svc", "service.version": version, "service.instance.id": replica })
    .merge(resources.detectResources({ detectors: [resources.envDetector] }));
  const watch = watched(new exporter.OTLPTraceExporter(), log);
  const processor = new sdk.BatchSpanProcessor(watch, {
    ...(!env.OTEL_BSP_SCHEDULE_DELAY && { scheduledDelayMillis: DELAY_MS }),
    ...(!env.OTEL_BSP_MAX_QUEUE_SIZE && { maxQueueSize: QUEUE }),
  });
  const provider = new sdk.BasicTracerProvider({
    resource,
    spanProcessors: [processor],
    // A span of a statement has a link to each of its messages.
    ...(!env.OTEL_SPAN_LINK_COUNT_LIMIT && { spanLimits: { linkCountLimit: LINKS } }),
  });
  const tracer = provider.getTracer("svc", version, { schemaUrl: SCHEMA_URL });

  const linkOf = ({ traceparent }: TraceContext) => ({ context: spanContextOf({ traceparent }) });
  const spanContextOf = ({ traceparent, tracestate }: TraceContext) => {
    const { traceId, spanId, isSampled } = partsOf(traceparent);
    const traceFlags = isSampled ? TraceFlags.SAMPLED : TraceFlags.NONE;
    return {
      traceId,
      spanId,
      traceFlags,
      isRemote: true,
      ...(tracestate !== undefined && { traceState: createTraceState(tracestate) }),
    };
  };
  const begin: Tracer["begin"] = (name, { kind, parent, links = [], attributes, startedAt }) => {
    const span = tracer.startSpan(
      name,
      {
        kind: kinds[kind],
        attributes,
        // A sender's `tracestate` is not exported.
        links: links.map(linkOf),
        ...(startedAt !== undefined && { startTime: startedAt }),
      },
      parent === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, spanContextOf(parent)),
    );
    const { traceId, spanId, traceFlags, traceState } = span.spanContext();
    return {
      context: {
        traceparent: `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`,
        tracestate: traceState?.serialize() || undefined,
      },
      end({ attributes: known = {}, error, at } = {}) {
        if (span.isRecording()) {
          span.setAttributes(error === undefined ? known : { ...known, [ERROR_TYPE]: error });
          if (error !== undefined) span.setStatus({ code: SpanStatusCode.ERROR });
        }
        span.end(at);
      },
    };
  };
  return {
    name: "tracing",
    start: async () => {},
    begin,
    async stop(cutoff) {
      const isEnded = provider.shutdown();
      // The collector is away: nobody waits for it.
      if (watch.isFailing()) return void isEnded.catch(() => {});
      await waitOrAbort(isEnded, cutoff, "the last spans").catch((error: unknown) =>
        log.warn({ reason: errorText(error) }, "the last spans could not be exported"),
      );
    },
  };
}

async function load() {
  try {
    const [api, sdk, exporter, resources] = await Promise.all([
      import("@opentelemetry/api"),
      import("@opentelemetry/sdk-trace-base"),
      import("@opentelemetry/exporter-trace-otlp-proto"),
      import("@opentelemetry/resources"),
    ]);
    return { api, sdk, exporter, resources };
  } catch (error) {
    const message = `needs optional packages that cannot be loaded: ${errorText(error)}; install svc with them, or set it to false`;
    throw new ConfigError([{ path: "tracing.enabled", message }]);
  }
}

/** Warns once for each outage of the collector. */
function watched(exporter: SpanExporter, log: Log): SpanExporter & { readonly isFailing: () => boolean } {
  let isFailing = false;
  return {
    isFailing: () => isFailing,
    export(spans, onResult) {
      exporter.export(spans, (result) => {
        const isFailed = result.error !== undefined;
        if (isFailed && !isFailing) {
          const reason = errorText(result.error);
          log.warn({ reason, spans: spans.length }, "the collector takes no spans: they are lost until it does");
        } else if (!isFailed && isFailing) log.info({}, "the collector takes spans again");
        isFailing = isFailed;
        onResult(result);
      });
    },
    forceFlush: async () => await exporter.forceFlush?.(),
    shutdown: () => exporter.shutdown(),
  };
}

const NOTHING = (): void => {};
const PROTOCOL = "http/protobuf";
/** Spans of a killed process that are lost. */
const DELAY_MS = 1000;
/** Some 16 MiB. */
const QUEUE = 8192;
/** Messages of a statement. */
const LINKS = 1000;

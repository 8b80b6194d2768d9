import type { SpanAttributes } from "../model/spans.ts";
import type { TraceContext } from "../model/traceContext.ts";

export interface SpanOptions {
  readonly kind: "server" | "client" | "producer" | "consumer" | "internal";
  /** The sender's or creator's; without one the span begins a trace, which the sampler keeps or not. */
  readonly parent?: TraceContext | undefined;
  readonly links?: readonly TraceContext[] | undefined;
  readonly attributes: SpanAttributes;
  /** Ms since 1970; now by default. */
  readonly startedAt?: number | undefined;
}

/** Makes spans. No method throws, and none waits: a collector that hangs or is away costs spans, and nothing else. */
export interface Tracer {
  begin(name: string, options: SpanOptions): Span;
}

export interface Span {
  /** To pass on: the parent of what follows, also of a span that is not sampled. */
  readonly context: TraceContext;
  /** @param attributes known at the end @param error the class of the failure (`error.type`); undefined for none */
  end(attributes?: SpanAttributes, error?: string): void;
}

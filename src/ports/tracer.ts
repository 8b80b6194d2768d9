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
  end(end?: SpanEnd): void;
}

interface SpanEnd {
  /** Known at the end. */
  readonly attributes?: SpanAttributes;
  /** The class of the failure (`error.type`); undefined for none. */
  readonly error?: string | undefined;
  /** Ms since 1970; now by default. */
  readonly at?: number | undefined;
}

import { emptyHeaders, type Headers } from "./rows.ts";

/** A span in the headers of a message (W3C Trace Context, https://www.w3.org/TR/trace-context/). */
export interface TraceContext {
  readonly traceparent: string;
  readonly tracestate?: string | undefined;
}

export const TRACEPARENT = "traceparent";
export const TRACESTATE = "tracestate";
/**
 * The context of receipt in an inbox row, beside the received one. Each relay writes it to the outbox row as
 * `traceparent` and `tracestate`, in the place of the received ones.
 */
export const RECEIPT_TRACEPARENT = "svc-traceparent";
export const RECEIPT_TRACESTATE = "svc-tracestate";
/** No sender's header of these names is stored. */
export const RECEIPT_HEADERS: readonly string[] = [RECEIPT_TRACEPARENT, RECEIPT_TRACESTATE];
export const TRACE_HEADERS: readonly string[] = [TRACEPARENT, TRACESTATE, ...RECEIPT_HEADERS];

/** Of version 00; one of a later version is read as such (section 3.2.4). */
const VALID = /^[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-|$)/;

/** @returns undefined if it is no `traceparent` */
export function parseTraceparent(
  text: string,
): { readonly traceId: string; readonly spanId: string; readonly isSampled: boolean } | undefined {
  const [, traceId, spanId, flags] = (text.startsWith("ff") ? null : VALID.exec(text)) ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  return { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

/** The context that a sender or an application gave a message; undefined if none is valid. */
export function givenContext(headers: Headers): TraceContext | undefined {
  const traceparent = headerOf(headers, TRACEPARENT);
  return traceparent === undefined || parseTraceparent(traceparent) === undefined
    ? undefined
    : { traceparent, tracestate: headerOf(headers, TRACESTATE) };
}

/** The context of a stored row: that of its receipt, of an application's row its own. */
export function storedContext(headers: Headers): TraceContext | undefined {
  return givenContext(asRelayed(headers));
}

/** Senders choose the letter case. */
function headerOf(headers: Headers, lowerCaseName: string): string | undefined {
  const value = headers[lowerCaseName];
  if (value !== undefined) return value;
  const name = Object.keys(headers).find(
    (each) => each.length === lowerCaseName.length && each.toLowerCase() === lowerCaseName,
  );
  return name === undefined ? undefined : headers[name];
}

/** The headers of an inbox row: those of the message, and the context of its receipt. */
export function withReceiptContext(headers: Headers, context: TraceContext | undefined): Headers {
  if (context === undefined) return headers;
  const { traceparent, tracestate } = context;
  return Object.assign(without(headers, RECEIPT_HEADERS), {
    [RECEIPT_TRACEPARENT]: traceparent,
    ...(tracestate !== undefined && { [RECEIPT_TRACESTATE]: tracestate }),
  });
}

/** The context of receipt of an inbox row. */
export function receiptContext(headers: Headers): TraceContext | undefined {
  const traceparent = headers[RECEIPT_TRACEPARENT];
  return traceparent === undefined ? undefined : { traceparent, tracestate: headers[RECEIPT_TRACESTATE] };
}

/** The headers of a message with another context, in the place of all that they had. */
export function withContext(headers: Headers, { traceparent, tracestate }: TraceContext): Headers {
  return Object.assign(without(headers, TRACE_HEADERS), {
    [TRACEPARENT]: traceparent,
    ...(tracestate !== undefined && { [TRACESTATE]: tracestate }),
  });
}

/** The headers of an inbox row as its outbox row has them: with the context of the receipt, if there is one. */
export function asRelayed(headers: Headers): Headers {
  const context = receiptContext(headers);
  return context === undefined ? headers : withContext(headers, context);
}

/** @param names in lower case */
export function without(headers: Headers, names: readonly string[]): Record<string, string> {
  const kept = emptyHeaders();
  for (const name of Object.keys(headers))
    if (!names.includes(name.toLowerCase())) kept[name] = headers[name] as string;
  return kept;
}

/** The fields of log lines that lead to the trace of a message; none if it has none. */
export function traceFields({ traceparent }: Headers): { readonly trace_id?: string; readonly span_id?: string } {
  const found = traceparent === undefined ? undefined : parseTraceparent(traceparent);
  return found === undefined ? {} : { trace_id: found.traceId, span_id: found.spanId };
}

/** Of the span that sends the message, if it is kept: a trace to look at. */
export function sampledTraceId({ traceparent }: Headers): string | undefined {
  const found = traceparent === undefined ? undefined : parseTraceparent(traceparent);
  return found?.isSampled === true ? found.traceId : undefined;
}

/** The trace of a stored message; undefined if it has none. */
export function traceIdOf(headers: Headers): string | undefined {
  const context = storedContext(headers);
  return context && parseTraceparent(context.traceparent)?.traceId;
}

/** In `tracing.urlTemplate`. */
export const TRACE_ID_PLACEHOLDER = /\{\{ *traceId *\}\}/g;

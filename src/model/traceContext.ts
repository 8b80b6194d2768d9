import type { Headers } from "./rows.ts";

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
const LENGTHS: ReadonlySet<number> = new Set(TRACE_HEADERS.map(({ length }) => length));

/** Of version 00; one of a later version is read as such (section 3.2.4). */
const VALID = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-|$)/;

interface TraceparentParts {
  readonly traceId: string;
  readonly spanId: string;
  readonly isSampled: boolean;
}

/** @param traceparent a valid one: of what is none the parts are nonsense, and it is not sampled */
export function partsOf(traceparent: string): TraceparentParts {
  return {
    traceId: traceparent.slice(3, 35),
    spanId: traceparent.slice(36, 52),
    isSampled: isSampled({ traceparent }),
  };
}

export const isSampled = ({ traceparent }: TraceContext): boolean =>
  (Number.parseInt(traceparent.slice(53, 55), 16) & 1) === 1;

/** The context that a sender or an application gave a message; undefined if none is valid. */
export function givenContext(headers: Headers): TraceContext | undefined {
  const traceparent = headerOf(headers, TRACEPARENT);
  return traceparent === undefined || !VALID.test(traceparent)
    ? undefined
    : { traceparent, tracestate: headerOf(headers, TRACESTATE) };
}

/** The context of a stored row: that of its receipt, of an application's row its own. */
export function storedContext(headers: Headers): TraceContext | undefined {
  return receiptContext(headers) ?? givenContext(headers);
}

/** Senders choose the letter case. */
function headerOf(headers: Headers, lowerCaseName: string): string | undefined {
  const value = headers[lowerCaseName];
  if (value !== undefined) return value;
  for (const name of Object.keys(headers)) {
    if (name.length === lowerCaseName.length && name.toLowerCase() === lowerCaseName) return headers[name];
  }
  return undefined;
}

/** The headers of an inbox row: those of the message, and the context of its receipt. */
export function withReceiptContext(headers: Headers, context: TraceContext | undefined): Headers {
  if (context === undefined) return headers;
  const { traceparent, tracestate } = context;
  // Spread literals, which stay as fast as the objects of a parser.
  if (tracestate === undefined) return { ...headers, [RECEIPT_TRACEPARENT]: traceparent };
  return { ...headers, [RECEIPT_TRACEPARENT]: traceparent, [RECEIPT_TRACESTATE]: tracestate };
}

/** The context of receipt of an inbox row. */
export function receiptContext(headers: Headers): TraceContext | undefined {
  const traceparent = headers[RECEIPT_TRACEPARENT];
  return traceparent === undefined ? undefined : { traceparent, tracestate: headers[RECEIPT_TRACESTATE] };
}

/** The headers of a message with another context, in the place of all that they had. */
export function withContext(headers: Headers, { traceparent, tracestate }: TraceContext): Headers {
  // Usually there is just that of the row, which is replaced.
  const others = isOnly(headers) ? headers : without(headers, TRACE_HEADERS);
  return tracestate === undefined ? { ...others, traceparent } : { ...others, traceparent, tracestate };
}

/** Whether `traceparent`, in this letter case, is the only header of a trace. */
function isOnly(headers: Headers): boolean {
  for (const name of Object.keys(headers)) {
    if (name === TRACEPARENT || !LENGTHS.has(name.length)) continue;
    if (TRACE_HEADERS.includes(name.toLowerCase())) return false;
  }
  return true;
}

/** The headers of an inbox row as its outbox row has them: with the context of the receipt, if there is one. */
export function asRelayed(headers: Headers): Headers {
  const context = receiptContext(headers);
  return context === undefined ? headers : withContext(headers, context);
}

/** @param names in lower case @returns the same headers if none of them is there */
export function without(headers: Headers, names: readonly string[]): Headers {
  const all = Object.keys(headers);
  // Few names are as long: the others need no lower case.
  const gone = all.filter(
    (name) => names.some((each) => each.length === name.length) && names.includes(name.toLowerCase()),
  );
  if (gone.length === 0) return headers;
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !gone.includes(name)));
}

/** The fields of log lines that lead to the trace of a message; none if it has none. */
export function traceFields({ traceparent }: Headers): { readonly trace_id?: string; readonly span_id?: string } {
  if (traceparent === undefined || !VALID.test(traceparent)) return {};
  const { traceId, spanId } = partsOf(traceparent);
  return { trace_id: traceId, span_id: spanId };
}

/** Of the span that sends the message, if it is kept: a trace to look at. */
export function sampledTraceId({ traceparent }: Headers): string | undefined {
  const isTrace = traceparent !== undefined && isSampled({ traceparent }) && VALID.test(traceparent);
  return isTrace ? partsOf(traceparent).traceId : undefined;
}

/** The trace of a stored message; undefined if it has none. */
export function traceIdOf(headers: Headers): string | undefined {
  const context = storedContext(headers);
  return context && partsOf(context.traceparent).traceId;
}

/** In `tracing.urlTemplate`. */
export const TRACE_ID_PLACEHOLDER = /\{\{ *traceId *\}\}/g;

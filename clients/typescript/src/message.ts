import { createHash, randomBytes } from "node:crypto";

/** A message for the outbox. Exactly one of `payload` and `json`. */
export interface Message {
  /** Selects the route, such as `orders.paid`; at most 1000 characters. */
  readonly topic: string;
  /** Any value that JSON can hold; it is written with `JSON.stringify`. */
  readonly payload?: unknown;
  /** JSON text, which is sent byte for byte. */
  readonly json?: string;
  /** Messages of one key are delivered in order; at most 800 characters. Without one a message has no order. */
  readonly key?: string | null;
  readonly headers?: Readonly<Record<string, string>> | null;
  /** The name of a destination, whatever the routes say. */
  readonly destination?: string | null;
  /** Not before this instant. */
  readonly deliverAt?: Date | string | null;
  /** Not after this instant. */
  readonly expiresAt?: Date | string | null;
  /** A UUID, by default a new one of version 7. Receivers de-duplicate by it. */
  readonly id?: string;
}

/** The field of a message that the database would refuse; `options` for a table or a cell. */
export type EnqueueErrorCode = ("topic" | "payload" | "key" | "headers" | "destination" | "time" | "id") | "options";

/** A message was refused before its statement: the transaction of the caller has not changed. */
export class EnqueueError extends Error {
  override readonly name = "EnqueueError";
  readonly code: EnqueueErrorCode;

  constructor(code: EnqueueErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** A message as its row has it: texts, and `headers` as JSON. */
export type Row = { readonly [F in Exclude<keyof Message, "json">]-?: string | null } & { readonly id: string };

/** @throws EnqueueError for what the database would refuse */
export function rowOf(message: Message): Row {
  const { topic, key = null, destination = null, id = newId() } = message;
  if (typeof topic !== "string" || topic.trim() === "")
    throw new EnqueueError("topic", "the topic is missing or blank");
  checkText("topic", topic, 1000);
  if (key !== null) checkText("key", key, 800);
  if (destination !== null) checkText("destination", destination, 200);
  if (!UUID.test(id)) throw new EnqueueError("id", `the id ${JSON.stringify(id)} is no UUID`);
  const [deliverAt, expiresAt] = [instant("deliverAt", message.deliverAt), instant("expiresAt", message.expiresAt)];
  const [payload, headers] = [payloadOf(message), headersOf(message)];
  return { id, topic, key, destination, deliverAt, expiresAt, payload, headers };
}

function checkText(code: EnqueueErrorCode, text: unknown, most = Number.POSITIVE_INFINITY): void {
  if (typeof text !== "string") throw new EnqueueError(code, `the ${code} is a ${typeof text}, expected a text`);
  if (text.length > most)
    throw new EnqueueError(code, `the ${code} has ${text.length} characters, at most ${most} fit`);
  if (text.includes("\0")) throw new EnqueueError(code, `the ${code} holds a NUL, which no database stores`);
  if (/\p{Surrogate}/u.test(text)) throw new EnqueueError(code, `the ${code} holds half of a surrogate pair`);
}

function payloadOf({ payload, json }: Message): string {
  if ((payload === undefined) === (json === undefined))
    throw new EnqueueError("payload", "give exactly one of payload and json");
  try {
    const text = json ?? JSON.stringify(payload);
    if (json !== undefined) JSON.parse(json);
    checkText("payload", text);
    return text;
  } catch (error) {
    if (error instanceof EnqueueError) throw error;
    throw new EnqueueError("payload", `it is no JSON: ${(error as Error).message}`);
  }
}

function headersOf({ headers }: Message): string | null {
  for (const text of Object.entries(headers ?? {}).flat()) checkText("headers", text);
  const isGiven = Object.keys(headers ?? {}).some((name) => name.toLowerCase() === "traceparent");
  const traceparent = isGiven ? undefined : activeTraceparent();
  if (traceparent !== undefined) return JSON.stringify({ ...headers, traceparent });
  return headers === undefined || headers === null ? null : JSON.stringify(headers);
}

/** The active span of OpenTelemetry, if its API is loaded: it registers itself under these symbols. */
function activeTraceparent(): string | undefined {
  const api = (globalThis as { [API]?: OpenTelemetry })[API];
  const span = api?.context?.active().getValue(Symbol.for("OpenTelemetry Context Key SPAN"))?.spanContext();
  if (span === undefined || /^0*$/.test(span.traceId)) return undefined;
  return `00-${span.traceId}-${span.spanId}-${span.traceFlags.toString(16).padStart(2, "0")}`;
}

const API = Symbol.for("opentelemetry.js.api.1");
type Span = { spanContext(): { readonly traceId: string; readonly spanId: string; readonly traceFlags: number } };
type OpenTelemetry = { readonly context?: { active(): { getValue(key: symbol): Span | undefined } } };

function instant(field: string, value: Date | string | null | undefined): string | null {
  if (value === undefined || value === null) return null;
  const text = new Date(value).toJSON() ?? "";
  // Other years have a sign. No database has the year 0, and SQL Server none after 9999.
  if (!/^(?!0000)\d/.test(text)) throw new EnqueueError("time", `${field} is no instant: ${String(value)}`);
  return text;
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

let last = 0n;
/** A UUID of version 7 (RFC 9562), larger than the ones before it in this process. */
export function newId(): string {
  // 48 bits of time, and 74 at random: the bits of a UUID without its version and variant.
  const drawn = (BigInt(Date.now()) << 74n) | (BigInt(`0x${randomBytes(10).toString("hex")}`) >> 6n);
  last = drawn > last ? drawn : last + 1n;
  const [time, a, b] = [last >> 74n, (last >> 62n) & 0xfffn, last & ((1n << 62n) - 1n)];
  const hex = ((time << 80n) | (7n << 76n) | (a << 64n) | (2n << 62n) | b).toString(16).padStart(32, "0");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/** The cell of a key among `cells`, from 0, as the service chooses it. Without a key: the first. */
export function cellOf(key: string | null | undefined, cells: number): number {
  if (key === null || key === undefined) return 0;
  return createHash("sha256").update(key, "utf8").digest().readUInt32BE(0) % cells;
}

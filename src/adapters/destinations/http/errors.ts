import { PublishError } from "../../../model/errors.ts";
import { NETWORK_FAULT_CODES, networkFaultCode } from "../../../model/networkFaults.ts";

/** Why a publish over HTTP failed: the codes of its `PublishError`. */
export const HTTP_ERROR_CODES = [
  ...NETWORK_FAULT_CODES,
  /** The answer is not HTTP, or its headers are too large. */
  "bad_response",
  /** Redirects are never followed. */
  "status_3xx",
  /** The receiver waited too long for the request. */
  "status_408",
  /** The receiver got too many requests. */
  "status_429",
  "status_4xx",
  "status_5xx",
  /** The address is private or serves cloud metadata, and the configuration blocks it. */
  "private_address",
  /** The access token request failed. */
  "token",
  /** A batch cannot carry the message. */
  "message_invalid",
  /** HTTP cannot carry a header of the message. */
  "header_invalid",
  "closed",
  "other",
] as const;
type HttpErrorCode = (typeof HTTP_ERROR_CODES)[number];

/** A {@link PublishError} whose code is one of {@link HTTP_ERROR_CODES}. */
export function httpError(
  code: HttpErrorCode,
  message: string,
  options?: ErrorOptions & {
    readonly retryAfterMs?: number | undefined;
    readonly status?: string;
    readonly isPermanent?: boolean;
  },
): PublishError {
  return new PublishError(code, message, options);
}

/** The code of a final status outside 2xx. */
export function statusCode(status: number): HttpErrorCode {
  if (status < 400) return "status_3xx";
  if (status === 408) return "status_408";
  if (status === 429) return "status_429";
  return status < 500 ? "status_4xx" : "status_5xx";
}

const CLIENT_CODES: Readonly<Record<string, HttpErrorCode>> = {
  UND_ERR_SOCKET: "connection_lost",
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: "connection_lost",
  UND_ERR_CONNECT_TIMEOUT: "timeout",
  UND_ERR_HEADERS_OVERFLOW: "bad_response",
  UND_ERR_DESTROYED: "closed",
  UND_ERR_CLOSED: "closed",
};

/**
 * @param request for the message, such as `POST https://example.com/hook`
 * @param error what the HTTP client or the connection threw; a `PublishError` (a refused address) is returned unchanged
 */
export function publishErrorOf(request: string, error: unknown): PublishError {
  if (error instanceof PublishError) return error;
  const { code, name } = Object(error) as { readonly code?: unknown; readonly name?: unknown };
  // Some errors of the client's parser have no code.
  const known = name === "HTTPParserError" ? "bad_response" : httpCodeOf(code);
  return httpError(known, `${request} failed`, { cause: error });
}

function httpCodeOf(code: unknown): HttpErrorCode {
  if (typeof code !== "string") return "other";
  // Of Node's parser, which reads a proxy's answer.
  if (code.startsWith("HPE_")) return "bad_response";
  // A certificate or key that cannot be used.
  if (code.startsWith("ERR_OSSL_")) return "tls";
  const known = Object.hasOwn(CLIENT_CODES, code) ? CLIENT_CODES[code] : undefined;
  return known ?? networkFaultCode(code) ?? "other";
}

const SECONDS = /^[0-9]+$/;
/** The three forms that RFC 9110, section 5.6.7 requires recipients to read; all begin with the name of a day. */
const HTTP_DATE = /^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)/;

/**
 * Reads the `Retry-After` header (RFC 9110, section 10.2.3) of an answer 429 or 503: seconds or an HTTP date.
 *
 * @param nowMs wall clock, ms since the Unix epoch
 * @returns ms to wait, 0 for a past date; undefined without a valid value, and for another status
 */
export function retryAfterMs(status: number, value: string | string[] | undefined, nowMs: number): number | undefined {
  if (status !== 429 && status !== 503) return undefined;
  const text = [value].flat()[0]?.trim() ?? "";
  if (SECONDS.test(text)) return Math.min(Number(text) * 1000, Number.MAX_SAFE_INTEGER);
  if (!HTTP_DATE.test(text)) return undefined;
  // The old asctime form names no zone; HTTP dates are always GMT.
  const date = Date.parse(text.endsWith("GMT") ? text : `${text} GMT`);
  return Number.isNaN(date) ? undefined : Math.max(0, date - nowMs);
}

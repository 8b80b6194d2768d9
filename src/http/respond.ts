import type { ServerResponse } from "node:http";

export const JSON_TYPE = "application/json; charset=utf-8";
export const TEXT_TYPE = "text/plain; charset=utf-8";

/** How long a sender may go on sending after it has its answer. */
export const LINGER_MS = 1000;

/** The `error` of answers that several routes give (spec, the status tables). */
export const ERRORS = {
  internal: "Internal error",
  notFound: "Not found",
  shuttingDown: "Service is shutting down",
  storageFailed: "Storage failed",
  transformUnavailable: "The transform cannot be run now",
  undecodable: "The body is not what its Content-Encoding says",
  unsupportedEncoding:
    "The Content-Encoding of the body is not supported; send it plain, or as one of gzip, deflate, br",
  noDestinationTable:
    "The table of the destinations is missing, or the service has no rights on it: " +
    "the log at startup has the statement that repairs it",
  noCsrfToken: "the X-CSRF-Token header is missing or is not that of the session: load the page again",
  noAuditTable: "The table of the audit log is missing, or the service has no right to read it: see docs/status.md",
  noJobTable: "The table of the replay jobs is missing, or the service has no rights on it: see docs/operations.md",
  noOverride:
    "The outbox has no column for another destination: run svc migrate, or add it by docs/outbox.md, and restart the processes",
  noJob: "There is no such replay",
  noCursor: "There is no such page: the cursor of the page before is expected, as it came",
  noMessage: "There is no such message: it was never received, a filter dropped it, or retention deleted it",
  tooManyFollowers: "Too many clients follow the events: close a page of the console",
  overloaded: "Too many unfinished request bodies are held; send the request again",
} as const;

/** The `error` of a 413 answer (spec, "Rules for every data-port route"). */
export const tooLargeMessage = (maxBytes: number): string => `Request body exceeds ${maxBytes} bytes`;

/** The `error` of a 413 answer to several messages in one request. */
export const tooManyMessage = (maxItems: number): string =>
  `The batch has more than ${maxItems} items; send several requests`;

/** Answers with a JSON body. */
export function sendJson(res: ServerResponse, status: number, body: object): void {
  send(res, status, JSON_TYPE, JSON.stringify(body));
}

/** Answers with `{"error": message}`. */
export function sendError(res: ServerResponse, status: number, message: string): void {
  sendJson(res, status, { error: message });
}

/**
 * Sends a whole answer, also to a request whose body has not arrived whole.
 *
 * @param contentType null for an answer without a body
 */
export function send(res: ServerResponse, status: number, contentType: string | null, text: string): void {
  // The sender is gone or has its answer.
  if (res.headersSent || res.destroyed) return;
  res.statusCode = status;
  if (contentType !== null) res.setHeader("Content-Type", contentType);
  res.setHeader("Content-Length", Buffer.byteLength(text));
  if (res.req.complete || !hasBody(res)) res.end(text);
  else sendEarly(res, text);
}

/**
 * The answer goes out at once, but ends only when the sender has ended too: a socket closed with unread bytes is reset,
 * and the sender loses the answer. What still arrives is discarded, for {@link LINGER_MS} at most.
 */
function sendEarly(res: ServerResponse, text: string): void {
  const { req } = res;
  // Without a `100 Continue` the sender may omit its body, and its next request would be read as one.
  if (req.headers.expect !== undefined) res.setHeader("Connection", "close");
  res.write(text);
  const cutOff = setTimeout(() => {
    // It is still queued behind the answers to earlier requests of its connection.
    if (res.socket === null && !req.socket.destroyed) cutOff.refresh();
    else req.socket.destroy();
  }, LINGER_MS);
  res.once("close", () => clearTimeout(cutOff));
  req.once("end", () => res.end());
  req.resume();
}

function hasBody({ req }: ServerResponse): boolean {
  const length = req.headers["content-length"];
  return req.headers["transfer-encoding"] !== undefined || (length !== undefined && length !== "0");
}

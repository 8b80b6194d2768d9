import type { IncomingMessage, ServerResponse } from "node:http";
import type { Transform } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate, createInflateRaw, type Zlib } from "node:zlib";
import type { Clock } from "../time/clock.ts";
import type { Verifier } from "./credentials.ts";

export interface BodyLimits {
  /** Largest body in bytes. */
  readonly maxBytes: number;
  readonly budget: BodyBudget;
}

interface Admission {
  readonly limits: BodyLimits;
  /** Null admits every caller. */
  readonly verifier: Verifier | null;
  /** Called for a request whose credentials do not hold. */
  readonly onRefused?: (req: IncomingMessage, reason: string) => void;
}

/** A request's body, decoded, from a sender whose credentials hold; or why there is none. */
type Admitted =
  | { readonly kind: "read"; readonly body: Buffer }
  | { readonly kind: "unauthorized"; readonly reason: string; readonly challenge: string }
  | { readonly kind: "too_large" | "unsupported_encoding" | "undecodable" }
  /** Too many unfinished bodies are held in memory. */
  | { readonly kind: "overloaded" }
  /** The sender disconnected before the body was complete. */
  | { readonly kind: "aborted" };

/** Answers with an error in the form of one route. */
export type AnswerError = (res: ServerResponse, status: number, message: string) => void;

/**
 * Reads a request's body and checks its credentials. A request that is not admitted has its answer when this resolves,
 * unless its sender is gone.
 *
 * @returns the body's bytes, decoded, or null for a request that was not admitted; never rejects
 */
export async function admit(
  req: IncomingMessage,
  res: ServerResponse,
  { limits, verifier, onRefused }: Admission,
  answerError: AnswerError = sendError,
): Promise<Buffer | null> {
  const admitted = await receiveBody(req, res, limits, verifier);
  switch (admitted.kind) {
    case "read":
      return admitted.body;
    case "too_large":
      answerError(res, 413, tooLargeMessage(limits.maxBytes));
      break;
    case "unauthorized":
      onRefused?.(req, admitted.reason);
      res.setHeader("WWW-Authenticate", admitted.challenge);
      answerError(res, 401, admitted.reason);
      break;
    case "unsupported_encoding":
      res.setHeader("Accept-Encoding", verifier?.signsBody ? "identity" : ACCEPTED_ENCODINGS);
      answerError(res, 415, ERRORS.unsupportedEncoding);
      break;
    case "undecodable":
      answerError(res, 400, ERRORS.undecodable);
      break;
    case "overloaded":
      res.setHeader("Retry-After", 1);
      answerError(res, 503, ERRORS.overloaded);
      break;
    case "aborted":
      break;
  }
  return null;
}

/**
 * What the headers alone can show is checked first: of a body whose sender may not send it only the size counts, since
 * a body above the cap is answered as such to every sender (spec, "Processing order").
 */
async function receiveBody(
  req: IncomingMessage,
  res: ServerResponse,
  limits: BodyLimits,
  verifier: Verifier | null,
): Promise<Admitted> {
  if (announcesTooMuch(req, limits.maxBytes)) return { kind: "too_large" };
  const refusal = verifier?.refusal(req, null) ?? null;
  if (verifier !== null && refusal !== null) {
    const unauthorized = { kind: "unauthorized", reason: refusal, challenge: verifier.challenge } as const;
    // An announced size is known without the body.
    if (req.headers["transfer-encoding"] === undefined) return unauthorized;
    const skipped = await gather(0, limits, (events) => read(req, res, events), false);
    return skipped.kind === "read" ? unauthorized : skipped;
  }
  const decoder = decoderOf(req.headers["content-encoding"]);
  // What is verified is what is parsed and stored: decoded, it could be another document.
  if (decoder === undefined || (decoder !== null && verifier?.signsBody)) return { kind: "unsupported_encoding" };

  // What announces more has been refused.
  const largest = Number(req.headers["content-length"] ?? limits.maxBytes);
  const received = await gather(largest, limits, (events) => read(req, res, events));
  if (received.kind !== "read") return received;
  const reason = verifier?.signsBody ? verifier.refusal(req, received.body) : null;
  if (verifier !== null && reason !== null) return { kind: "unauthorized", reason, challenge: verifier.challenge };
  return decoder === null ? received : decodeBody(received.body, decoder, limits);
}

/** Whether the request announces a body above the cap. */
export function announcesTooMuch(req: IncomingMessage, maxBytes: number): boolean {
  const length = req.headers["content-length"];
  return length !== undefined && Number(length) > maxBytes;
}

/** Decodes a body, within the same cap and the same budget as the bytes that were sent. */
function decodeBody(body: Buffer, decoder: Decoder, limits: BodyLimits): Promise<Admitted> {
  return gather(limits.maxBytes, limits, ({ onData, onEnd, onFailure }) => {
    const stream = decoder(body);
    stream.on("data", onData);
    // What follows the encoded data would pass unseen.
    stream.on("end", () => (stream.bytesWritten === body.length ? onEnd() : onFailure("undecodable")));
    stream.on("error", () => onFailure("undecodable"));
    stream.end(body);
    return () => stream.destroy();
  });
}

interface BodyEvents {
  readonly onData: (chunk: Buffer) => void;
  readonly onEnd: () => void;
  readonly onFailure: (kind: "aborted" | "undecodable") => void;
}

/**
 * Gathers the bytes of a body within the limits. Never rejects.
 *
 * @param largest most bytes that it can have
 * @param start begins to read, and returns what stops it
 * @param keeps false counts the bytes only
 */
function gather(
  largest: number,
  { maxBytes, budget }: BodyLimits,
  start: (events: BodyEvents) => () => void,
  keeps = true,
): Promise<Admitted> {
  return new Promise((resolve) => {
    let size = 0;
    const body = new GatheredBody(largest, budget, () => finish({ kind: "overloaded" }));
    const stop = start({
      onData(chunk) {
        size += chunk.length;
        if (size > maxBytes) finish({ kind: "too_large" });
        else if (keeps && !body.add(chunk)) finish({ kind: "overloaded" });
      },
      onEnd: () => finish({ kind: "read", body: body.bytes() }),
      onFailure: (kind) => finish({ kind }),
    });
    function finish(result: Admitted): void {
      stop();
      body.release();
      resolve(result);
    }
  });
}

/**
 * Reads the bytes of a request. A sender that waits for `100 Continue` gets it only now: a refusal needs no body.
 *
 * @returns stops reading
 */
function read(req: IncomingMessage, res: ServerResponse, { onData, onEnd, onFailure }: BodyEvents): () => void {
  if (req.httpVersionMinor > 0 && req.headers.expect?.toLowerCase() === "100-continue") res.writeContinue();
  const onClose = (): void => onFailure("aborted");
  // An aborted request emits "error" and then "close"; without a listener the error would end the process.
  req.on("data", onData).on("end", onEnd).on("error", ignore).on("close", onClose);
  return () => req.off("data", onData).off("end", onEnd).off("close", onClose);
}

function ignore(): void {}

/** The encodings that the service decodes, for the answer to others (RFC 9110, section 15.5.16). */
export const ACCEPTED_ENCODINGS = "gzip, deflate, br";

type Decoder = (body: Buffer) => Transform & Zlib;

const DECODERS: ReadonlyMap<string, Decoder> = new Map(
  Object.entries({
    gzip: () => createGunzip(),
    "x-gzip": () => createGunzip(),
    // The name means zlib; many senders omit its frame, whose first byte has "deflate" in four bits.
    deflate: (body) => (((body[0] ?? 0) & 0x0f) === 8 ? createInflate() : createInflateRaw()),
    br: () => createBrotliDecompress(),
  } satisfies Readonly<Record<string, Decoder>>),
);

/** The decoder of a `Content-Encoding`: null for an identity body, undefined for what the service does not decode. */
function decoderOf(contentEncoding: string | undefined): Decoder | null | undefined {
  if (contentEncoding === undefined) return null;
  const name = contentEncoding.trim().toLowerCase();
  return name === "" || name === "identity" ? null : DECODERS.get(name);
}

const NOTHING = Buffer.alloc(0);

/**
 * The bytes of a body in one buffer, which doubles as they arrive: with a buffer for each chunk, a sender of one-byte
 * chunks would take hundreds of times the body.
 */
class GatheredBody implements BodyHolder {
  readonly giveUp: () => void;
  readonly #budget: BodyBudget;
  readonly #largest: number;
  #bytes: Buffer = NOTHING;
  /** Whether `#bytes` is a buffer with room at its end, and not the first chunk. */
  #isOurs = false;
  #heldBytes = 0;
  #length = 0;

  constructor(largest: number, budget: BodyBudget, giveUp: () => void) {
    this.#largest = largest;
    this.#budget = budget;
    this.giveUp = giveUp;
  }

  /** @returns false when the budget has no room for it */
  add(chunk: Buffer): boolean {
    const length = this.#length + chunk.length;
    if (this.#length === 0) {
      // The usual body arrives in one chunk, which is not copied.
      if (!this.#hold(chunk.length)) return false;
      this.#bytes = chunk;
    } else {
      if ((!this.#isOurs || length > this.#bytes.length) && !this.#growTo(length)) return false;
      chunk.copy(this.#bytes, this.#length);
    }
    this.#length = length;
    // It has progressed.
    if (this.#heldBytes > 0) this.#budget.hold(this, this.#heldBytes);
    return true;
  }

  bytes(): Buffer {
    return this.#bytes.length === this.#length ? this.#bytes : this.#bytes.subarray(0, this.#length);
  }

  release(): void {
    if (this.#heldBytes > 0) this.#budget.release(this);
  }

  #growTo(length: number): boolean {
    const capacity = Math.max(length, Math.min(this.#largest, 2 * length));
    if (!this.#hold(capacity)) return false;
    const larger = Buffer.allocUnsafe(capacity);
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
    this.#isOurs = true;
    return true;
  }

  #hold(bytes: number): boolean {
    if (bytes <= UNCOUNTED_BYTES) return true;
    if (!this.#budget.hold(this, bytes)) return false;
    this.#heldBytes = bytes;
    return true;
  }
}

/** A body that is being read, or decoded. */
interface BodyHolder {
  /** Drops the body and answers its sender. */
  readonly giveUp: () => void;
}

/** Up to this size a body costs no more than its connection and is not counted: common messages spare the budget. */
const UNCOUNTED_BYTES = 16 * 1024;

/** A body without progress for this long is dropped when another one needs the memory, in ms. */
const STALLED_MS = 1000;

/**
 * The memory that unfinished request bodies of the process may hold together. When it is used up, stalled bodies are
 * dropped first, so that senders who leave bodies unfinished harm only themselves; without any, the body that asks is
 * refused.
 */
export class BodyBudget {
  readonly #maxBytes: number;
  readonly #clock: Pick<Clock, "monotonic">;
  /** The holder that progressed longest ago first. */
  readonly #holders = new Map<BodyHolder, { readonly bytes: number; readonly advancedAt: number }>();
  #bytes = 0;

  /** @param maxBytes may be exceeded by a single body, or a body within its route's limit could never be read */
  constructor(maxBytes: number, clock: Pick<Clock, "monotonic">) {
    this.#maxBytes = maxBytes;
    this.#clock = clock;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Sets the bytes that a body holds, if there is room, and its time of progress. @returns false without room */
  hold(holder: BodyHolder, bytes: number): boolean {
    const held = this.#holders.get(holder)?.bytes ?? 0;
    const more = bytes - held;
    if (more > 0 && this.#lacks(more, holder)) this.#giveUpStalled(more, holder);
    if (more > 0 && this.#lacks(more, holder)) return false;
    this.#bytes += more;
    this.#holders.delete(holder);
    this.#holders.set(holder, { bytes, advancedAt: this.#clock.monotonic() });
    return true;
  }

  release(holder: BodyHolder): void {
    this.#bytes -= this.#holders.get(holder)?.bytes ?? 0;
    this.#holders.delete(holder);
  }

  #lacks(more: number, holder: BodyHolder): boolean {
    const alone = this.#holders.size === 0 || (this.#holders.size === 1 && this.#holders.has(holder));
    return !alone && this.#bytes + more > this.#maxBytes;
  }

  #giveUpStalled(more: number, asking: BodyHolder): void {
    const latest = this.#clock.monotonic() - STALLED_MS;
    for (const [holder, { advancedAt }] of this.#holders) {
      if (advancedAt > latest || !this.#lacks(more, asking)) return;
      if (holder === asking) continue;
      this.release(holder);
      holder.giveUp();
    }
  }
}

export const JSON_TYPE = "application/json; charset=utf-8";
export const TEXT_TYPE = "text/plain; charset=utf-8";

/** How long a sender may continue to send after it has its answer. */
export const LINGER_MS = 1000;

export function sendJson(res: ServerResponse, status: number, body: object | string): void {
  send(res, status, JSON_TYPE, typeof body === "string" ? body : JSON.stringify(body));
}

/** Answers with `{"error": message}`. */
export function sendError(res: ServerResponse, status: number, message: string): void {
  sendJson(res, status, { error: message });
}

/** Emitted by a response with the status and the text of its answer, before it goes out. */
export const ANSWERED = "answered";

/** Sends a whole answer, also to a request whose body is not complete. @param contentType null without a body */
export function send(res: ServerResponse, status: number, contentType: string | null, text: string): void {
  // The sender is gone or has its answer.
  if (res.headersSent || res.destroyed) return;
  res.statusCode = status;
  if (contentType !== null) res.setHeader("Content-Type", contentType);
  res.setHeader("Content-Length", Buffer.byteLength(text));
  res.emit(ANSWERED, status, text);
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

/** The `error` of answers that several routes give (spec, the status tables). */
export const ERRORS = {
  internal: "Internal error",
  notFound: "Not found",
  shuttingDown: "Service is shutting down",
  storageFailed: "Storage failed",
  transformUnavailable: "The transform cannot be run now",
  undecodable: "The body does not match its Content-Encoding",
  unsupportedEncoding:
    "The Content-Encoding of the body is not supported; send it plain, or, if the request is not signed, as one of gzip, deflate, br",
  noDestinationTable:
    "The table of the destinations is missing, or the service has no rights on it: " +
    "the log at startup has the statement that repairs it",
  noCsrfToken: "the X-CSRF-Token header is missing or is not that of the session: load the page again",
  noAuditTable: "The table of the audit log is missing, or the service has no right to read it: see docs/status.md",
  noDestinationColumn:
    "The outbox has no column for another destination: run svc migrate, or add it by docs/tables.md, and restart the processes",
  noCursor: "There is no such page: send the cursor of the page before, unchanged",
  noMessage: "There is no such message: it was never received, a filter dropped it, or retention deleted it",
  tooManyReads: "Too many requests of operators wait: send this one again",
  tooManyFollowers: "Too many clients follow the events: close a page of the console",
  overloaded: "Too many unfinished request bodies are held; send the request again",
} as const;

/** The `error` of a 413 answer (spec, "Rules for every data-port route"). */
export const tooLargeMessage = (maxBytes: number): string => `Request body exceeds ${maxBytes} bytes`;

/** The `error` of a 413 answer to several messages in one request. */
export const tooManyMessage = (maxItems: number): string =>
  `The batch has more than ${maxItems} items; send several requests`;

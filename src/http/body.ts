import type { IncomingMessage, ServerResponse } from "node:http";
import { type BodyBudget, type BodyHolder, UNCOUNTED_BYTES } from "./bodyBudget.ts";

export type BodyResult =
  | { readonly kind: "read"; readonly body: Buffer }
  | { readonly kind: "too_large" }
  /** Too many unfinished bodies are held in memory. */
  | { readonly kind: "overloaded" }
  /** The sender went away before the body was whole: there is nobody to answer. */
  | { readonly kind: "aborted" };

export interface BodyLimits {
  /** Largest body in bytes. */
  readonly maxBytes: number;
  readonly budget: BodyBudget;
}

/** The `error` of a 413 answer (spec, "Rules for every data-port route"). */
export const tooLargeMessage = (maxBytes: number): string => `Request body exceeds ${maxBytes} bytes`;

/**
 * Whether the request announces a body above the cap.
 *
 * @param maxBytes the cap in bytes
 */
export function announcesTooMuch(req: IncomingMessage, maxBytes: number): boolean {
  const length = req.headers["content-length"];
  return length !== undefined && Number(length) > maxBytes;
}

/**
 * Reads a request's body, counting the bytes as they come. A sender that waits for `100 Continue` gets it only now, so that
 * an answer that needs no body saves it the sending.
 *
 * @param limits a larger body is not read to its end
 * @returns the bytes; never rejects
 */
export function readBody(
  req: IncomingMessage,
  res: ServerResponse,
  { maxBytes, budget }: BodyLimits,
): Promise<BodyResult> {
  if (announcesTooMuch(req, maxBytes)) return Promise.resolve({ kind: "too_large" });
  return new Promise((resolve) => {
    const body = new GatheredBody(Number(req.headers["content-length"] ?? maxBytes), budget, () =>
      finish({ kind: "overloaded" }),
    );
    const stopReading = read(req, res, {
      onData(chunk) {
        if (body.length + chunk.length > maxBytes) finish({ kind: "too_large" });
        else if (!body.add(chunk)) finish({ kind: "overloaded" });
      },
      onEnd: () => finish({ kind: "read", body: body.bytes() }),
      onAbort: () => finish({ kind: "aborted" }),
    });
    function finish(result: BodyResult): void {
      stopReading();
      body.release();
      resolve(result);
    }
  });
}

/**
 * Reads a body whose content does not matter any more and keeps nothing of it: its size still decides the answer.
 *
 * @param maxBytes the cap in bytes
 * @returns never rejects
 */
export function skipBody(
  req: IncomingMessage,
  res: ServerResponse,
  maxBytes: number,
): Promise<"within" | "too_large" | "aborted"> {
  if (announcesTooMuch(req, maxBytes)) return Promise.resolve("too_large");
  // Where the size is announced, the body has nothing more to say.
  if (req.headers["transfer-encoding"] === undefined) return Promise.resolve("within");
  return new Promise((resolve) => {
    let size = 0;
    const stopReading = read(req, res, {
      onData(chunk) {
        size += chunk.length;
        if (size > maxBytes) finish("too_large");
      },
      onEnd: () => finish("within"),
      onAbort: () => finish("aborted"),
    });
    function finish(result: "within" | "too_large" | "aborted"): void {
      stopReading();
      resolve(result);
    }
  });
}

interface BodyEvents {
  readonly onData: (chunk: Buffer) => void;
  readonly onEnd: () => void;
  readonly onAbort: () => void;
}

/** @returns what ends the reading */
function read(req: IncomingMessage, res: ServerResponse, { onData, onEnd, onAbort }: BodyEvents): () => void {
  if (awaitsContinue(req)) res.writeContinue();
  // A request that breaks off emits "error" and then "close"; without a listener the error would end the process.
  req.on("data", onData).on("end", onEnd).on("error", ignore).on("close", onAbort);
  return () => req.off("data", onData).off("end", onEnd).off("close", onAbort);
}

function awaitsContinue(req: IncomingMessage): boolean {
  return req.httpVersionMinor > 0 && req.headers.expect?.toLowerCase() === "100-continue";
}

function ignore(): void {}

const NOTHING = Buffer.alloc(0);

/**
 * The bytes of a body in one buffer, which doubles while they come: a sender decides how small its chunks are, and a buffer for each of a million
 * chunks of one byte would hold hundreds of times the body.
 */
export class GatheredBody implements BodyHolder {
  readonly giveUp: () => void;
  readonly #budget: BodyBudget;
  readonly #largest: number;
  #bytes: Buffer = NOTHING;
  /** Whether `#bytes` is a buffer of our own with room at its end, and not the first chunk. */
  #isOurs = false;
  #held = 0;
  #markedAt = 0;
  length = 0;

  /** @param largest most bytes that may come */
  constructor(largest: number, budget: BodyBudget, giveUp: () => void) {
    this.#largest = largest;
    this.#budget = budget;
    this.giveUp = giveUp;
  }

  /** @returns false when the budget has no room for it */
  add(chunk: Buffer): boolean {
    const length = this.length + chunk.length;
    if (this.length === 0) {
      // The usual body comes in one chunk, which is not copied.
      if (!this.#hold(chunk.length)) return false;
      this.#bytes = chunk;
    } else {
      if ((!this.#isOurs || length > this.#bytes.length) && !this.#growTo(length)) return false;
      chunk.copy(this.#bytes, this.length);
    }
    this.length = length;
    if (this.#held > 0 && length - this.#markedAt >= UNCOUNTED_BYTES) {
      this.#markedAt = length;
      this.#budget.hold(this, this.#held);
    }
    return true;
  }

  bytes(): Buffer {
    return this.#bytes.length === this.length ? this.#bytes : this.#bytes.subarray(0, this.length);
  }

  release(): void {
    if (this.#held > 0) this.#budget.release(this);
  }

  #growTo(length: number): boolean {
    const capacity = Math.max(length, Math.min(this.#largest, 2 * length));
    if (!this.#hold(capacity)) return false;
    const larger = Buffer.allocUnsafe(capacity);
    this.#bytes.copy(larger, 0, 0, this.length);
    this.#bytes = larger;
    this.#isOurs = true;
    return true;
  }

  #hold(bytes: number): boolean {
    if (bytes <= UNCOUNTED_BYTES) return true;
    if (!this.#budget.hold(this, bytes)) return false;
    this.#held = bytes;
    return true;
  }
}

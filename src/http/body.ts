import type { IncomingMessage, ServerResponse } from "node:http";

export type BodyResult =
  | { readonly kind: "read"; readonly body: Buffer }
  | { readonly kind: "too_large" }
  /** The sender went away before the body was whole: there is nobody to answer. */
  | { readonly kind: "aborted" };

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
 * @param maxBytes the cap in bytes; a larger body is not read to its end
 * @returns the bytes; never rejects
 */
export function readBody(req: IncomingMessage, res: ServerResponse, maxBytes: number): Promise<BodyResult> {
  if (announcesTooMuch(req, maxBytes)) return Promise.resolve({ kind: "too_large" });
  if (awaitsContinue(req)) res.writeContinue();
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let size = 0;

    function onData(chunk: Buffer): void {
      size += chunk.length;
      if (size > maxBytes) finish({ kind: "too_large" });
      else chunks.push(chunk);
    }
    function onEnd(): void {
      const [first] = chunks;
      finish({ kind: "read", body: chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks, size) });
    }
    function onAbort(): void {
      finish({ kind: "aborted" });
    }
    function finish(result: BodyResult): void {
      req.off("data", onData).off("end", onEnd).off("close", onAbort);
      resolve(result);
    }

    // A request that breaks off emits "error" and then "close"; without a listener the error would end the process.
    req.on("data", onData).on("end", onEnd).on("error", ignore).on("close", onAbort);
  });
}

function awaitsContinue(req: IncomingMessage): boolean {
  return req.httpVersionMinor > 0 && req.headers.expect?.toLowerCase() === "100-continue";
}

function ignore(): void {}

import { isUtf8 } from "node:buffer";

/**
 * Reads a request body.
 *
 * @throws Error whose message quotes nothing of the body
 */
export function parseJsonBody(body: Buffer): unknown {
  try {
    if (isUtf8(body)) return JSON.parse(body.toString("utf8"));
  } catch {
    // The parser's own message would quote the payload.
  }
  throw new Error("the body is not a JSON document in UTF-8");
}

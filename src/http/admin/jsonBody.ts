import { jsonText } from "../../core/receipt/jsonDocument.ts";

/**
 * Reads a request body.
 *
 * @throws Error whose message quotes nothing of the body
 */
export function parseJsonBody(body: Buffer): unknown {
  try {
    const text = jsonText(body);
    if (text !== null) return JSON.parse(text);
  } catch {
    // The parser's own message would quote the payload.
  }
  throw new Error("the body is not a JSON document in UTF-8");
}

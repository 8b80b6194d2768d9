import { isUtf8 } from "node:buffer";

const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);

/**
 * The text of a JSON document as bytes; that it is JSON is not checked.
 *
 * @returns without the byte order mark that some senders put in front, which parsers may ignore (RFC 8259, section 8.1) and most refuse; null when
 *   the bytes are not UTF-8, since decoding would replace a wrong byte by what nobody sent
 */
export function jsonText(body: Buffer): string | null {
  if (!isUtf8(body)) return null;
  const hasMark = body[0] === BYTE_ORDER_MARK[0] && body.indexOf(BYTE_ORDER_MARK) === 0;
  return body.toString("utf8", hasMark ? BYTE_ORDER_MARK.length : 0);
}

import type { Headers, MessageId } from "../../model/rows.ts";

const MESSAGE_ID_HEADER = "x-message-id";
const CONTENT_TYPE_HEADER = "content-type";
const JSON_CONTENT_TYPE = "application/json";

/** Makes the headers of one delivery from those of the row. */
export type OutboundHeaders = (row: Headers, id: MessageId) => Headers;

/**
 * Compiles the header rules of one destination: the row's headers win over the destination's static ones of the same name in
 * any letter case, `content-type` is `application/json` unless one of them says otherwise, and `x-message-id` is always the id
 * of the outbox row, also when the row carries the one of an upstream sender.
 *
 * What cannot travel over a certain wire (a line break, `content-length`) is the adapter's to refuse or drop, since each wire
 * has its own rules.
 *
 * @param statics `destinations.<name>.headers`
 */
export function compileOutboundHeaders(statics: Headers): OutboundHeaders {
  const hasContentType = Object.keys(statics).some((name) => name.toLowerCase() === CONTENT_TYPE_HEADER);
  const all = hasContentType ? statics : { [CONTENT_TYPE_HEADER]: JSON_CONTENT_TYPE, ...statics };
  const defaults = Object.entries(all)
    .map(([name, value]) => ({ name, value, lowerCase: name.toLowerCase() }))
    .filter(({ lowerCase }) => lowerCase !== MESSAGE_ID_HEADER);

  return (row, id) => {
    const rowNames = new Map<string, string>();
    for (const name of Object.keys(row)) rowNames.set(name.toLowerCase(), name);
    rowNames.delete(MESSAGE_ID_HEADER);

    const headers: Record<string, string> = {};
    for (const { name, value, lowerCase } of defaults) if (!rowNames.has(lowerCase)) headers[name] = value;
    for (const name of rowNames.values()) headers[name] = row[name] ?? "";
    headers[MESSAGE_ID_HEADER] = id;
    return headers;
  };
}

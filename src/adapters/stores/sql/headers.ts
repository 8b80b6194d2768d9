import type { Headers } from "../../../model/rows.ts";

const NO_HEADERS: Headers = Object.freeze({});

/**
 * Headers as somebody wrote them into the column: it may hold anything, and none of it may wedge the row.
 *
 * @param value the column as text
 * @returns the headers; none when the text is no JSON object. A value that is no text comes as JSON text, null is left out.
 */
export function headersOf(value: unknown): Headers {
  if (typeof value !== "string" || value === "{}" || value === "") return NO_HEADERS;
  let parsed: unknown;
  try {
    parsed = JSON.parse(value);
  } catch {
    return NO_HEADERS;
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return NO_HEADERS;
  for (const header of Object.values(parsed)) {
    if (typeof header !== "string") return textHeaders(parsed);
  }
  return parsed as Headers;
}

function textHeaders(parsed: object): Headers {
  const entries = Object.entries(parsed).filter(([, header]) => header !== null);
  return Object.fromEntries(
    entries.map(([name, header]) => [name, typeof header === "string" ? header : JSON.stringify(header)]),
  );
}

import { emptyHeaders, type Headers } from "./rows.ts";
import { percentEncoded } from "./text.ts";

/** CloudEvents 1.0.2: attributes of an event among the headers of a message, as the protocol bindings write them. */

/** How a protocol binding writes attributes as headers. */
export interface CloudEventsBinding {
  readonly prefix: string;
  /** Whether values are percent-encoded. */
  readonly isEncoded: boolean;
}

/** Of HTTP and NATS. Stored rows have the attributes of a received event in this form. */
export const HTTP_BINDING: CloudEventsBinding = { prefix: "ce-", isEncoded: true };

/** Prefixes of the bindings for HTTP and NATS, Kafka, and AMQP; attribute names are lower-case letters and digits. */
const OF_EVENT = /^(?:(ce-)|ce_|cloudEvents[:_])([a-z0-9]+)$/i;

/**
 * Attributes of an event among the headers, decoded, and the other headers. The content type is not an attribute. If an
 * attribute comes in several forms, `ce-` counts: a signature may cover that header, but no header that was added.
 */
export function splitAttributes(all: Headers) {
  const attributes: Record<string, string> = {};
  const others: Record<string, string> = {};
  const headers = emptyHeaders();
  for (const [name, value] of Object.entries(all)) {
    const [, isEncoded, attribute] = OF_EVENT.exec(name) ?? [];
    if (attribute === undefined) headers[name] = value;
    else if (attribute.toLowerCase() !== "datacontenttype") {
      if (isEncoded === undefined) others[attribute.toLowerCase()] = value;
      else attributes[attribute.toLowerCase()] = decodedAttribute(value);
    }
  }
  return { attributes: { ...others, ...attributes }, headers };
}

export function attributeHeaders(
  attributes: Readonly<Record<string, string>>,
  { prefix, isEncoded }: CloudEventsBinding,
): Headers {
  const entries = Object.entries(attributes);
  return Object.fromEntries(entries.map(([name, value]) => [`${prefix}${name}`, isEncoded ? encoded(value) : value]));
}

/** HTTP protocol binding, section 3.1.3.2: space, double quote, percent and what is not printable ASCII. */
function encoded(value: string): string {
  return value.replace(/[^\x21\x23\x24\x26-\x7e]+/gu, percentEncoded);
}

export function decodedAttribute(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    // Written by somebody who did not encode it.
    return value;
  }
}

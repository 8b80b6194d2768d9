import { parse as parseLossless, stringify as stringifyLossless } from "lossless-json";
import { PublishError } from "../../model/errors.ts";
import { type DeliverableRow, emptyHeaders, type Headers, type MessageId } from "../../model/rows.ts";
import { parsedJson } from "../../model/text.ts";
import type { AddressColumn } from "../../ports/kinds.ts";
import { findHeader } from "../receipt/attributes.ts";
import { member } from "../receipt/jsonDocument.ts";

/**
 * Templates (spec, "Templates"): text with placeholders such as `{{ topic }}`, spaces inside the braces optional.
 * Braces that do not form a placeholder are literal. A rendered value is text: braces in it are never read as
 * a placeholder.
 */
type Piece = { readonly literal: string } | { readonly placeholder: string };

function parsePieces(text: string): readonly Piece[] {
  const pieces: Piece[] = [];
  let literalFrom = 0;
  for (let close = text.indexOf("}}"); close >= 0; close = text.indexOf("}}", close + 1)) {
    // The nearest opening braces: in `{{ {{ topic }}` the first two are literal.
    const open = text.lastIndexOf("{{", close - 2);
    if (open < literalFrom) continue;
    if (open > literalFrom) pieces.push({ literal: text.slice(literalFrom, open) });
    pieces.push({ placeholder: text.slice(open + 2, close).trim() });
    literalFrom = close + 2;
    close++;
  }
  if (literalFrom < text.length) pieces.push({ literal: text.slice(literalFrom) });
  return pieces;
}

function unknownPlaceholder(text: string, name: string, permitted: string): Error {
  return new Error(`unknown placeholder {{ ${name} }} in ${JSON.stringify(text)}; permitted are ${permitted}`);
}

/**
 * Compiles `sources.<name>.topic`, which has the placeholders `source` and `eventType`.
 *
 * @returns the parts around each `{{ eventType }}`, with the source's name filled in: joined by the event type, and
 *   trimmed, they are the topic (`RelayRequest.topics`)
 * @throws Error that names an unknown placeholder and the permitted ones
 */
export function topicParts(template: string, source: string): readonly string[] {
  const parts: string[] = [];
  let current = "";
  for (const piece of parsePieces(template)) {
    if ("literal" in piece) current += piece.literal;
    else if (piece.placeholder === "source") current += source;
    else if (piece.placeholder === "eventType") {
      parts.push(current);
      current = "";
    } else throw unknownPlaceholder(template, piece.placeholder, "{{ source }} and {{ eventType }}");
  }
  return [...parts, current];
}

/** Values for placeholders; the payload is parsed on first use. */
export interface MessageFields {
  readonly topic: string;
  readonly key: string | null;
  readonly aggregateType: string | null;
  /** The text of a payload field; undefined when it is missing or null, or the payload is not JSON. */
  payloadText(names: readonly string[]): string | undefined;
  header(lowerCaseName: string): string | undefined;
}

/** The fields of one outbox row: its columns, and `payload` as stored (transforms change only the delivered body). */
export function messageFields(
  row: Pick<DeliverableRow, "topic" | "key" | "aggregateType" | "payload"> & { readonly headers?: Headers },
): MessageFields {
  let parsed: { readonly document: unknown } | undefined;
  return {
    topic: row.topic,
    key: row.key,
    aggregateType: row.aggregateType,
    payloadText(names) {
      parsed ??= { document: parsedJson(row.payload) };
      const value = names.reduce(member, parsed.document);
      if (value === undefined || value === null) return undefined;
      if (typeof value === "string") return value;
      if (typeof value === "boolean") return String(value);
      // A second, rare parse keeps the digits of numbers (12345678901234567890, 1.0).
      const exact = names.reduce(member, parseExact(row.payload));
      return stringifyLossless(exact) ?? JSON.stringify(value);
    },
    header: (lowerCaseName) => findHeader(row.headers ?? {}, lowerCaseName),
  };
}

/** @returns undefined if the JSON is nested too deep for the parser */
function parseExact(text: string): unknown {
  try {
    // Like JSON.parse: the last of two members with one name counts.
    return parseLossless(text, null, { onDuplicateKey: ({ newValue }) => newValue });
  } catch {
    return undefined;
  }
}

interface MessageTemplate {
  readonly text: string;
  /** @param missing replaces a placeholder without a value */
  render(fields: MessageFields, missing?: string): string;
  /** @param write the text for the value of a placeholder; undefined or null: it has no value */
  fill(fields: MessageFields, write: (value: string | null | undefined, placeholder: string) => string): string;
  readonly hasPlaceholders: boolean;
}

type Lookup = (fields: MessageFields) => string | null | undefined;

const COLUMNS = {
  topic: (fields: MessageFields) => fields.topic,
  key: (fields: MessageFields) => fields.key,
  aggregateType: (fields: MessageFields) => fields.aggregateType,
} as const;
const COLUMN_FIELDS = { topic: "topic", key: "key", aggregate_type: "aggregateType" } as const;
const RECORD_KEY_COLUMNS: readonly string[] = ["topic", "key"];
const ADDRESS_PLACEHOLDERS =
  "{{ topic }}, {{ key }}, {{ aggregateType }}, {{ headers.<name> }}, {{ payload.<field> }} and {{ data.<field> }} (a dot for each nested field)";
const HEADERS_ROOT = "headers.";

function lookupOf(name: string): Lookup | undefined {
  if (Object.hasOwn(COLUMNS, name)) return COLUMNS[name as keyof typeof COLUMNS];
  if (name.startsWith(HEADERS_ROOT) && name.length > HEADERS_ROOT.length) {
    const lowerCaseName = name.slice(HEADERS_ROOT.length).toLowerCase();
    return (fields) => fields.header(lowerCaseName);
  }
  const [root, ...names] = name.split(".");
  if ((root !== "payload" && root !== "data") || names.length === 0 || names.includes("")) return undefined;
  return (fields) => fields.payloadText(names);
}

function compile(text: string, lookupFor: (name: string) => Lookup): MessageTemplate {
  const parts = parsePieces(text).map((piece) =>
    "literal" in piece ? piece.literal : { name: piece.placeholder, lookup: lookupFor(piece.placeholder) },
  );
  const fill: MessageTemplate["fill"] = (fields, write) => {
    let filled = "";
    for (const part of parts) filled += typeof part === "string" ? part : write(part.lookup(fields), part.name);
    return filled;
  };
  return {
    text,
    fill,
    render: (fields, missing = "") => fill(fields, (value) => value ?? missing),
    hasPlaceholders: parts.some((part) => typeof part !== "string"),
  };
}

/** Compiles an address template (AMQP exchange, Kafka topic, NATS subject). @throws Error on an unknown placeholder */
export function parseAddressTemplate(text: string): MessageTemplate {
  return compile(text, (name) => {
    const lookup = lookupOf(name);
    if (lookup === undefined) throw unknownPlaceholder(text, name, ADDRESS_PLACEHOLDERS);
    return lookup;
  });
}

/** Compiles a routing key template: an unknown placeholder never finds a value. */
export function parseRoutingKeyTemplate(text: string): MessageTemplate {
  return compile(text, (name) => lookupOf(name) ?? (() => undefined));
}

/** Compiles the record key template of a Kafka destination: only `{{ key }}` and `{{ topic }}` find a value. */
export function parseRecordKeyTemplate(text: string): MessageTemplate {
  return compile(text, (name) => (RECORD_KEY_COLUMNS.includes(name) ? lookupOf(name) : undefined) ?? (() => undefined));
}

export interface Address {
  /** @throws PublishError `address_empty` when the result is blank: the publish of this row fails */
  render(fields: MessageFields): string;
}

/**
 * Compiles the address of a broker destination.
 *
 * @param config `name`: what is addressed, for messages (`exchange`, `topic`, `subject`); `template`: its value;
 * `from`: the column that holds it instead, used as is
 * @throws Error that names an unknown placeholder and the permitted ones
 */
export function compileAddress(config: {
  readonly name: string;
  readonly template: string;
  readonly from: AddressColumn | undefined;
}): Address {
  const { name, template, from } = config;
  const render = from === undefined ? parseAddressTemplate(template).render : COLUMNS[COLUMN_FIELDS[from]];
  const origin = from === undefined ? `the template ${JSON.stringify(template)}` : `the column ${from}`;
  return {
    render(fields) {
      const address = render(fields) ?? "";
      if (address.trim() !== "") return address;
      throw new PublishError("address_empty", `the ${name} is empty: ${origin} gave no text for this row`);
    },
  };
}

/**
 * Compiles the path of a URL. Values are percent-encoded, `/` too: they stay within their segment. A row fails its
 * publish if a placeholder has no value, or its path has a segment `.` or `..`, which servers resolve.
 *
 * @returns null without a placeholder: every row has the same path
 * @throws Error on an unknown placeholder
 */
export function compilePath(text: string): Address | null {
  const template = parseAddressTemplate(text);
  if (!template.hasPlaceholders) return null;
  return {
    render(fields) {
      const path = template.fill(fields, (value, name) => {
        if (value) return encodeURIComponent(value.replace(/\p{Surrogate}/gu, "\ufffd"));
        throw new PublishError("address_empty", `the path has no value for {{ ${name} }} in this row`);
      });
      // Some servers decode before they resolve: to them `..%2F` is a segment too.
      if (!hasDotSegment(path) && !hasDotSegment(decodedOnce(path))) return path;
      throw new PublishError(
        "url_invalid",
        'the path would have a segment "." or "..", which a message may not choose',
      );
    },
  };
}

function decodedOnce(path: string): string {
  return path.replace(/%2f|%5c/gi, "/").replaceAll("%25", "%");
}

/** Whether a path has a segment that URL parsers resolve, however it is written. */
export function hasDotSegment(path: string): boolean {
  const segments = (path.split(/[?#]/, 1)[0] ?? "").split(/[/\\]/);
  return segments.some((segment) => /^(\.|%2e){1,2}$/i.test(segment));
}

/**
 * Compiles a header value that may be an address template. One with an unknown placeholder is text: static headers are
 * older than templates (spec, "destinations.<name>").
 *
 * @returns the text without a placeholder; else a function, which returns undefined if a placeholder has no value
 */
export function compileHeaderValue(text: string): string | ((fields: MessageFields) => string | undefined) {
  if (hasUnknownPlaceholder(text)) return text;
  const template = parseAddressTemplate(text);
  if (!template.hasPlaceholders) return text;
  return (fields) => {
    let isWhole = true;
    const filled = template.fill(fields, (value) => {
      if (!value) isWhole = false;
      return value ?? "";
    });
    return isWhole ? filled : undefined;
  };
}

export function hasUnknownPlaceholder(text: string): boolean {
  return parsePieces(text).some((piece) => "placeholder" in piece && lookupOf(piece.placeholder) === undefined);
}

/** How a destination kind makes the routing key (AMQP) or record key (Kafka) of a message. */
export interface RoutingKey {
  /** The destination's own template; a route's template wins over it. */
  readonly template: MessageTemplate;
  /** Kafka: an empty result sends no key. AMQP: an empty routing key is a key. */
  readonly emptyMeansNone: boolean;
}

export interface RouteRoutingKey {
  readonly routingKey: MessageTemplate | null;
  /** `routingKeyMissingFieldDefault`. */
  readonly routingKeyMissing: string;
}

export function renderRoutingKey(
  destination: RoutingKey | null,
  route: RouteRoutingKey,
  fields: MessageFields,
): string | null {
  if (destination === null) return null;
  const template = route.routingKey ?? destination.template;
  const rendered = template.render(fields, route.routingKeyMissing);
  return rendered === "" && destination.emptyMeansNone ? null : rendered;
}

/** Name to value, or what renders it; undefined leaves the header out. */
export type StaticHeaders = Readonly<Record<string, string | ((fields: MessageFields) => string | undefined)>>;

const MESSAGE_ID_HEADER = "x-message-id";
const DELIVERY_ID_HEADER = "x-delivery-id";
const CONTENT_TYPE_HEADER = "content-type";
const JSON_CONTENT_TYPE = "application/json";

/** Makes the headers of one delivery from those of the row. @param delivery the id of a delivery row */
export type OutboundHeaders = (row: Headers, id: MessageId, fields: MessageFields, delivery?: MessageId) => Headers;

/**
 * Compiles the header rules of one destination: the row's headers win over static ones of the same name in any letter
 * case, `content-type` is `application/json` by default, and `x-message-id` is always the id of the message, even if
 * the row carries that of an upstream sender. The adapter refuses or drops what its protocol cannot carry.
 */
export function compileOutboundHeaders(statics: StaticHeaders): OutboundHeaders {
  const hasContentType = Object.keys(statics).some((name) => name.toLowerCase() === CONTENT_TYPE_HEADER);
  const all = hasContentType ? statics : { [CONTENT_TYPE_HEADER]: JSON_CONTENT_TYPE, ...statics };
  const defaults = Object.entries(all)
    .map(([name, value]) => ({ name, value, lowerCase: name.toLowerCase() }))
    .filter(({ lowerCase }) => lowerCase !== MESSAGE_ID_HEADER);

  return (row, id, fields, delivery) => {
    const rowNames = new Map<string, string>();
    for (const name of Object.keys(row)) rowNames.set(name.toLowerCase(), name);
    rowNames.delete(MESSAGE_ID_HEADER);

    const headers = emptyHeaders();
    for (const { name, value, lowerCase } of defaults) {
      if (rowNames.has(lowerCase)) continue;
      const text = typeof value === "string" ? value : value(fields);
      if (text !== undefined) headers[name] = text;
    }
    for (const name of rowNames.values()) headers[name] = row[name] ?? "";
    headers[MESSAGE_ID_HEADER] = id;
    if (delivery !== undefined) {
      if (rowNames.has(DELIVERY_ID_HEADER)) delete headers[rowNames.get(DELIVERY_ID_HEADER) ?? ""];
      headers[DELIVERY_ID_HEADER] = delivery;
    }
    return headers;
  };
}

import { createHash, randomUUID } from "node:crypto";
import { decodedAttribute } from "../../model/cloudEvents.ts";
import type { Headers } from "../../model/rows.ts";
import type { AttributePlace, AttributePlaces } from "../../ports/kinds.ts";
import type { BrokerMessage } from "../../ports/source.ts";
import { JsonDocument, member, parseWithExactNumbers } from "./jsonDocument.ts";
import { parseJsonPath } from "./jsonPath.ts";

/** What the service reads from a message: its idempotency key, its type and what it is about. */
export interface Attributes {
  readonly idempotencyKey: string;
  readonly eventType: string | null;
  readonly aggregateId: string | null;
}

export type Extraction =
  | { readonly kind: "extracted"; readonly attributes: Attributes }
  /** `reason` is addressed to the sender. */
  | { readonly kind: "failed"; readonly reason: string };

/** The values of a message's places, as found; null if no place holds a usable one. */
export type FoundAttributes = Readonly<Record<keyof Attributes, string | null>>;

export interface AttributeInput {
  readonly body: Uint8Array;
  readonly document: JsonDocument;
  readonly headers: Headers;
  readonly properties?: BrokerProperties | undefined;
  /** Its place among the messages of its request, from 0; undefined if it came alone. */
  readonly position?: number | undefined;
}

/** What a broker adds to a message, apart from its headers. */
export type BrokerProperties = Pick<BrokerMessage, "messageId" | "recordKey" | "streamPlace" | "publishedAt">;

/** One place that may hold an attribute. */
interface AttributeProvider {
  /** As reasons name it: `at $.id`. */
  readonly place: string;
  /** An expression gives it, which runs elsewhere: what comes after counts only if the expression gave no value. */
  readonly isComputed?: boolean;
  /** The messages of one request share it. */
  readonly isOfRequest?: boolean;
  /** Its value is a key in its stored form, which is derived: no sender gave it. */
  readonly isDerived?: boolean;
  /** @returns the value, or null when the place holds no usable one */
  find(input: AttributeInput): string | null;
}

/** The places of each attribute, in order; the first value wins. */
export type AttributePlan = Readonly<Record<keyof Attributes, readonly AttributeProvider[]>>;

/** One definite JSONPath, or several in the order in which they are tried. */
type Paths = string | readonly string[];

interface AttributeSettings {
  readonly cloudEvents?: boolean | undefined;
  readonly idempotencyKeyHeader?: string | undefined;
  readonly eventTypeHeader?: string | undefined;
  readonly aggregateIdHeader?: string | undefined;
  readonly idempotencyKeyPath?: Paths | undefined;
  readonly eventTypePath?: Paths | undefined;
  readonly aggregateIdPath?: Paths | undefined;
  readonly idempotencyKeyExpression?: string | undefined;
}

export interface BrokerAttributeSettings extends AttributeSettings {
  readonly idempotencyKeyPath: Paths;
  readonly attributeHeaders: Readonly<Record<keyof Attributes, string>>;
}

/** Longer keys are stored as a digest: index keys are limited (2.7 kB in PostgreSQL, 1.7 kB in SQL Server). */
const MAX_KEY_LENGTH = 255;
/** How keys begin that are put together of several values, and digests. */
const DERIVED = /^(?:joined|sha256):/;
const MAX_ATTRIBUTE_LENGTH = 1024;

/**
 * The places from which an HTTP source reads attributes (spec, "sources.<name>").
 *
 * @param own places that count if no path is configured
 * @throws Error when a path is not a definite JSONPath
 */
export function httpPlan(settings: AttributeSettings, own?: Omit<AttributePlaces, "aggregateId">): AttributePlan {
  const { idempotencyKeyPath, eventTypePath, aggregateIdPath } = settings;
  const inPlaces = (places: readonly AttributePlace[] = []) => places.map(inPlace);
  const event = eventPlaces(settings);
  const key = idempotencyKeyPath === undefined ? inPlaces(own?.idempotencyKey) : atPaths(idempotencyKeyPath);
  const type = eventTypePath === undefined ? inPlaces(own?.eventType) : atPaths(eventTypePath);
  return withHeaders(settings, {
    idempotencyKey: [...key, ...event.idempotencyKey],
    eventType: [...type, ...event.eventType],
    aggregateId: [...atPaths(aggregateIdPath), ...event.aggregateId],
  });
}

/**
 * The places from which a broker source reads attributes, in the order of the spec ("sources.<name>").
 *
 * @throws Error when a path is not a definite JSONPath
 */
export function brokerPlan(settings: BrokerAttributeSettings, own: AttributePlaces): AttributePlan {
  const headers = settings.attributeHeaders;
  const key = [inHeader(headers.idempotencyKey), ...atPaths(settings.idempotencyKeyPath)];
  const event = eventPlaces(settings);
  return withHeaders(settings, {
    // Every event has an id, and the default path would find another one in its data.
    idempotencyKey: [...event.idempotencyKey, ...key, ...own.idempotencyKey.map(inPlace), bodyDigest],
    eventType: [...atPaths(settings.eventTypePath), ...event.eventType, inHeader(headers.eventType)],
    aggregateId: [
      ...atPaths(settings.aggregateIdPath),
      ...event.aggregateId,
      inHeader(headers.aggregateId),
      ...own.aggregateId.map(inPlace),
    ],
  });
}

/** The attributes of CloudEvents: the id, the type, and the subject as aggregate id. */
function eventPlaces({ cloudEvents = false }: AttributeSettings): AttributePlan {
  const at = (name: string): readonly AttributeProvider[] => (cloudEvents ? [inEvent(name)] : []);
  return { idempotencyKey: at("id"), eventType: at("type"), aggregateId: at("subject") };
}

function inEvent(name: string): AttributeProvider {
  const { find } = inHeader(`ce-${name}`);
  return {
    place: `in the event's attribute ${name}`,
    find(input) {
      const value = find(input);
      return value === null ? null : decodedAttribute(value);
    },
  };
}

/** The configured headers win over every other place, and after them the expressions. */
function withHeaders(
  { idempotencyKeyHeader, eventTypeHeader, aggregateIdHeader, idempotencyKeyExpression }: AttributeSettings,
  { idempotencyKey, eventType, aggregateId }: AttributePlan,
): AttributePlan {
  const computedKey = idempotencyKeyExpression === undefined ? [] : [computed("idempotencyKeyExpression")];
  const inOptionalHeader = (name: string | undefined) => (name === undefined ? [] : [inHeader(name)]);
  return {
    idempotencyKey: [...inOptionalHeader(idempotencyKeyHeader), ...computedKey, ...idempotencyKey].map(inStoredForm),
    eventType: [...inOptionalHeader(eventTypeHeader), ...eventType],
    aggregateId: [...inOptionalHeader(aggregateIdHeader), ...aggregateId],
  };
}

function inStoredForm(place: AttributeProvider): AttributeProvider {
  const { find, isDerived = false } = place;
  const findStored: typeof find = (input) => {
    const key = find(input);
    return key && storedKey(key);
  };
  return isDerived ? place : { ...place, find: findStored };
}

/** Reads every place of a message. @returns what they hold; `noKeyReason` is empty if there is a key */
export function findAttributes(
  plan: AttributePlan,
  input: AttributeInput,
): FoundAttributes & { readonly noKeyReason: string } {
  const idempotencyKey = keyIn(plan.idempotencyKey, input);
  return {
    idempotencyKey,
    eventType: firstValue(plan.eventType, input),
    aggregateId: firstValue(plan.aggregateId, input),
    noKeyReason: idempotencyKey === null ? noKeyReason(plan.idempotencyKey) : "",
  };
}

/** @returns the attributes as stored, as the key is already; or why the message cannot be accepted */
export function usableAttributes(
  { idempotencyKey, eventType, aggregateId }: FoundAttributes,
  noKeyReason: string,
): Extraction {
  if (idempotencyKey === null) return { kind: "failed", reason: noKeyReason };
  const reason = unusable("event type", eventType) ?? unusable("aggregate id", aggregateId);
  if (reason !== null) return { kind: "failed", reason };
  return { kind: "extracted", attributes: { idempotencyKey, eventType, aggregateId } };
}

/** Reads the attributes of a message that is kept only as evidence; see {@link storableAttributes}. */
export function evidenceAttributes(plan: AttributePlan, input: AttributeInput): Attributes {
  return storableAttributes(findAttributes(plan, input), input.body);
}

/** @param body its digest is the key if there is none @returns the attributes as stored, without unstorable ones */
export function storableAttributes(
  { idempotencyKey, eventType, aggregateId }: FoundAttributes,
  body: Uint8Array,
): Attributes {
  const storable = (value: string | null) => (unusable("attribute", value) === null ? value : null);
  return {
    idempotencyKey: idempotencyKey ?? digest(body),
    eventType: storable(eventType),
    aggregateId: storable(aggregateId),
  };
}

/** The key that the row of a dropped message would have; null without one, by an expression, or of a large body. */
export function droppedKey(
  { idempotencyKey }: AttributePlan,
  { body, ...input }: Omit<AttributeInput, "document" | "body"> & { readonly body: Buffer },
): string | null {
  if (body.length > MOST_PARSED_BYTES) return null;
  const document = JsonDocument.parse(body);
  const end = idempotencyKey.findIndex(({ isComputed = false }) => isComputed);
  const certain = end < 0 ? idempotencyKey : idempotencyKey.slice(0, end);
  return document === null ? null : firstValue(certain, { body, document, ...input });
}

const MOST_PARSED_BYTES = 16_384;

function firstValue(providers: readonly AttributeProvider[], input: AttributeInput): string | null {
  for (const provider of providers) {
    const value = provider.find(input);
    if (value !== null) return value;
  }
  return null;
}

/** Of several messages in one request each has a key of its own: a header gives it only with the message's position. */
function keyIn(providers: readonly AttributeProvider[], input: AttributeInput): string | null {
  if (input.position === undefined) return firstValue(providers, input);
  const own = providers.filter(({ isOfRequest = false }) => !isOfRequest);
  const ofMessage = firstValue(own, input);
  if (ofMessage !== null) return ofMessage;
  const ofRequest = firstValue(providers, input);
  return ofRequest === null ? null : joinedKey([ofRequest, input.position]);
}

function noKeyReason(providers: readonly AttributeProvider[]): string {
  const places = providers.map(({ place }) => place).join(" or ");
  return `no idempotency key ${places}: a non-empty string, a number or a boolean is expected`;
}

function unusable(attribute: string, value: string | null): string | null {
  if (value === null) return null;
  if (value.length > MAX_ATTRIBUTE_LENGTH) {
    return `the ${attribute} has ${value.length} characters; at most ${MAX_ATTRIBUTE_LENGTH} can be stored`;
  }
  return isStorable(value) ? null : `the ${attribute} holds a NUL character or half of a surrogate pair`;
}

/**
 * The stored form of a key that a sender gave.
 *
 * @returns the key itself, or `sha256:<hex>` of its UTF-8 bytes when a database cannot index or store it, or it begins
 *   as derived keys do: it would be taken for the key of another message
 */
export function storedKey(key: string): string {
  return DERIVED.test(key) ? digest(bytesOf(key)) : indexable(key);
}

/** The stored keys that an operator may mean by a key: of a sender, or already in its stored form. */
export function storedForms(key: string): readonly string[] {
  return [...new Set([indexable(key), storedKey(key)])];
}

/** A key of several values, in its stored form: `joined:` and the values with colons between; theirs become `%3A`. */
function joinedKey(values: readonly unknown[]): string {
  const escaped = values.map((value) => String(value).replace(/[%:]/g, encodeURIComponent));
  const key = `joined:${escaped.join(":")}`;
  // Behind a byte that no text has: the digest of the text is the stored form of a key that a sender gave.
  return indexable(key) === key ? key : digest(Buffer.concat([Buffer.of(0xfe), bytesOf(key)]));
}

/** SQL Server compares texts without the spaces at their ends. */
const indexable = (key: string): string =>
  key.length <= MAX_KEY_LENGTH && isStorable(key) && !key.endsWith(" ") ? key : digest(bytesOf(key));

export function inHeader(name: string): AttributeProvider {
  const lowerCaseName = name.toLowerCase();
  return {
    place: `in header ${name}`,
    isOfRequest: true,
    find: ({ headers }) => findHeader(headers, lowerCaseName) || null,
  };
}

/** @param key of the configuration that holds the expression */
const computed = (key: string): AttributeProvider => ({
  place: `by ${key}`,
  isComputed: true,
  find: () => null,
});

function inPlace(place: AttributePlace): AttributeProvider {
  if ("header" in place) return inHeader(place.header);
  if ("path" in place) return atPath(place.path);
  if ("each" in place) return inItems(place.each);
  if ("joined" in place) return joined(place.joined.map(inPlace));
  if ("digest" in place) return bodyDigest;
  const { property, text } = place;
  return {
    place: `in ${text}`,
    find: ({ properties }) => properties?.[property] || null,
  };
}

function atPath(text: string): AttributeProvider {
  const path = parseJsonPath(text);
  return {
    place: `at ${text}`,
    find: ({ document }) => document.scalarAt(path),
  };
}

function joined(providers: readonly AttributeProvider[]): AttributeProvider {
  return {
    place: providers.map(({ place }) => place).join(" and "),
    isOfRequest: providers.every(({ isOfRequest = false }) => isOfRequest),
    isDerived: true,
    find(input) {
      const values = providers.map((provider) => provider.find(input));
      return values.includes(null) ? null : joinedKey(values);
    },
  };
}

/** A batch is one message: its key is that of its items, in their order. */
function inItems(members: readonly string[]): AttributeProvider {
  return {
    place: `at ${members.map((name) => `$[*].${name}`).join(" and ")}`,
    isDerived: true,
    find({ document }) {
      const items = parseWithExactNumbers(document.text);
      if (!Array.isArray(items) || items.length === 0) return null;
      const values = items.map((item) => members.map((name) => member(item, name)));
      if (values.flat().some((value) => !["string", "number"].includes(typeof value))) return null;
      const [first = []] = values;
      if (values.length > 1) return digest(Buffer.from(JSON.stringify(values)));
      return first.length > 1 ? joinedKey(first) : storedKey(String(first[0]));
    },
  };
}

export const atPaths = (paths: Paths = []): readonly AttributeProvider[] => [paths].flat().map(atPath);

/** The last resort: identical bodies are one message. */
const bodyDigest: AttributeProvider = {
  place: "as digest of the body",
  isDerived: true,
  find: ({ body }) => digest(body),
};

export function findHeader(headers: Headers, lowerCaseName: string): string | undefined {
  for (const name in headers) {
    if (name.length === lowerCaseName.length && name.toLowerCase() === lowerCaseName) return headers[name];
  }
  return undefined;
}

/** Whether every database can store the text: none takes a NUL, and lone surrogates have no UTF-8 form. */
function isStorable(text: string): boolean {
  return !text.includes("\0") && !LONE_SURROGATE.test(text);
}

const LONE_SURROGATE = /\p{Surrogate}/u;

/** UTF-8; with lone surrogates, which have none, UTF-16 behind a byte that UTF-8 lacks: no two texts have the same. */
const bytesOf = (text: string): Buffer =>
  LONE_SURROGATE.test(text) ? Buffer.concat([NOT_UTF8, Buffer.from(text, "utf16le")]) : Buffer.from(text);
const NOT_UTF8 = Buffer.of(0xff);

const digest = (bytes: Uint8Array): string => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

/** Stored in a column of its own, not among the headers. */
export const CORRELATION_HEADER = "X-Correlation-Id";

const MAX_CORRELATION_ID_LENGTH = 255;
/** What a response header can hold as is: no control characters. Bytes above 0x7f are Latin-1. */
const CORRELATION_ID = /^[\x20-\x7e\x80-\xff]+$/;

/**
 * @param received what the sender gave: the header `X-Correlation-Id`, or a broker property
 * @returns the received id; a new UUID without one. An id longer than 255 characters, or with control characters or
 *   characters beyond Latin-1, becomes `sha256:` and the digest of its UTF-8 text, so that an operator who knows the id
 *   finds the message
 */
export function correlationId(received: string | readonly string[] | undefined): string {
  if (typeof received !== "string" || received === "") return randomUUID();
  if (received.length <= MAX_CORRELATION_ID_LENGTH && CORRELATION_ID.test(received)) return received;
  return digest(Buffer.from(received));
}

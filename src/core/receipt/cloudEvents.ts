import { attributeHeaders, HTTP_BINDING, splitAttributes } from "../../model/cloudEvents.ts";
import type { Headers } from "../../model/rows.ts";
import { JsonDocument, memberText } from "./jsonDocument.ts";
import { isTimestamp } from "./times.ts";

/** Received CloudEvents (1.0.2): structured or binary become one form, the data as body and the attributes as headers. */

interface EventMessage {
  readonly body: Buffer;
  readonly headers: Headers;
}

type ReadEvent =
  | ({ readonly kind: "event" } & EventMessage)
  /** `reason` is addressed to the sender. */
  | { readonly kind: "failed"; readonly reason: string };

/** Reads an event. @returns its data as JSON text; its attributes with the prefix `ce-` are among its headers */
export function readEvent({ body, headers: all }: EventMessage): ReadEvent {
  const contentType = Object.entries(all).find(([name]) => name.toLowerCase() === "content-type")?.[1] ?? "";
  const [, isBatch, format] = /^application\/cloudevents(-batch)?(?:\+([a-z0-9]+))?\s*(?:;|$)/i.exec(contentType) ?? [];
  if (isBatch !== undefined) return failed("it is a batch; send one event at a time");
  const isStructured = /^application\/cloudevents\b/i.test(contentType);
  if (isStructured && format?.toLowerCase() !== "json") return failed("its format is not JSON");
  const { attributes, headers } = splitAttributes(all);
  if (isStructured) return fromEnvelope(body, headers);
  const missing = missingAttribute(attributes);
  if (missing !== undefined)
    return failed(`it has no attribute ${missing}, and its content type is not application/cloudevents+json`);
  if (!hasTime(attributes)) return failed(NO_TIME);
  if (attributes.data !== undefined) return failed(RESERVED);
  const data = body.length === 0 ? NO_DATA : body;
  return { kind: "event", body: data, headers: { ...headers, ...attributeHeaders(attributes, HTTP_BINDING) } };
}

const NO_DATA = Buffer.from("null");
const RESERVED = "its attribute data has a name that CloudEvents reserves";

function fromEnvelope(body: Buffer, others: Headers): ReadEvent {
  const document = JsonDocument.parse(body);
  const envelope = document?.value;
  if (document === null || typeof envelope !== "object" || envelope === null || Array.isArray(envelope))
    return failed("its envelope is not a JSON object in UTF-8");
  const { data_base64: base64, datacontenttype: dataType, ...members } = envelope as Readonly<Record<string, unknown>>;
  const attributes: Record<string, string> = {};
  for (const [name, value] of Object.entries(members)) {
    if (name === "data" || value === null) continue;
    if (!/^[a-z0-9]+$/.test(name))
      return failed(`its attribute ${JSON.stringify(name.slice(0, LONGEST_NAME))} is not a lower-case word`);
    if (!["string", "number", "boolean"].includes(typeof value))
      return failed(`its attribute ${name.slice(0, LONGEST_NAME)} is not a string, a number or a boolean`);
    // It would become U+FFFD, and different ids the same.
    if (typeof value === "string" && LONE_SURROGATE.test(value))
      return failed(`its attribute ${name.slice(0, LONGEST_NAME)} holds half of a surrogate pair`);
    // A parsed number may have lost digits.
    attributes[name] = (typeof value === "number" && memberText(document.text, name)) || String(value);
  }
  const missing = missingAttribute(attributes);
  if (missing !== undefined) return failed(`it has no attribute ${missing}`);
  if (!hasTime(attributes)) return failed(NO_TIME);
  if (typeof dataType === "string" && !HEADER_TEXT.test(dataType))
    return failed("its datacontenttype holds what no header can");
  const kept = Object.entries(others).filter(([name]) => name.toLowerCase() !== "content-type");
  const headers = {
    ...Object.fromEntries(kept),
    "content-type": typeof dataType === "string" && dataType !== "" ? dataType : "application/json",
    ...attributeHeaders(attributes, HTTP_BINDING),
  };
  if (base64 === undefined || base64 === null) {
    return { kind: "event", headers, body: Buffer.from(memberText(document.text, "data") ?? "null") };
  }
  if ("data" in members) return failed("it has both data and data_base64");
  if (typeof base64 !== "string" || !BASE64.test(base64)) return failed("its data_base64 is not base64");
  return { kind: "event", headers, body: Buffer.from(base64, "base64") };
}

const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
const LONGEST_NAME = 100;
/** The database would refuse others, one statement for each event of a batch. */
const HEADER_TEXT = /^[^\p{Cc}\p{Surrogate}]*$/u;
const LONE_SURROGATE = /\p{Surrogate}/u;

function missingAttribute(attributes: Readonly<Record<string, string>>): string | undefined {
  const missing = ["specversion", "id", "source", "type"].find((name) => !attributes[name]);
  if (missing !== undefined) return missing;
  return attributes.specversion === "1.0" ? undefined : "specversion 1.0";
}

const NO_TIME = "its time is not a timestamp of RFC 3339 such as 2026-01-05T08:30:00Z";

/** Whether `time` is a timestamp, or absent; a header without text is none. */
const hasTime = ({ time = "" }: Readonly<Record<string, string>>): boolean => time === "" || isTimestamp(time);

function failed(what: string): ReadEvent {
  return { kind: "failed", reason: `the message is not a CloudEvent that the source takes: ${what}` };
}

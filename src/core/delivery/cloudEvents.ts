import { attributeHeaders, type CloudEventsBinding, splitAttributes } from "../../model/cloudEvents.ts";
import { PublishError } from "../../model/errors.ts";
import type { DeliverableRow, Headers } from "../../model/rows.ts";
import { parsedJson } from "../../model/text.ts";
import { type MessageFields, parseAddressTemplate } from "./template.ts";

/** `destinations.<name>.cloudEvents`. */
interface CloudEventsSettings {
  readonly mode: "binary" | "structured";
  readonly source: string;
  readonly type: string;
  readonly subject: string;
}

/** Makes body and headers of a CloudEvent from those of a delivery. */
export type EventWriter = (
  row: Pick<DeliverableRow, "id" | "createdAt" | "headers">,
  fields: MessageFields,
  body: string,
  headers: Headers,
) => { readonly body: string; readonly headers: Headers };

/**
 * Compiles the CloudEvents of a destination (CloudEvents 1.0.2, its JSON format and its protocol bindings). A row
 * received as an event, whose attributes are headers with the prefix of a binding, stays that event. Such headers from
 * other sources do not count: their senders do not choose what the destination's events are.
 *
 * @param eventSources the sources whose messages are events
 * @throws Error on an unknown placeholder; its writer throws PublishError if `source` or `type` is empty
 */
export function compileCloudEvents(
  settings: CloudEventsSettings,
  binding: CloudEventsBinding,
  eventSources: ReadonlySet<string>,
): EventWriter {
  const templates = (["source", "type", "subject"] as const).map(
    (name) => [name, parseAddressTemplate(settings[name])] as const,
  );
  return (row, fields, body, all) => {
    const { attributes, headers } = splitAttributes(all);
    // The relay writes this header, whatever a sender gave.
    const source = row.headers["x-source"];
    const isPlain = source !== undefined && !eventSources.has(source);
    const claimed = isPlain ? splitAttributes(row.headers).attributes : {};
    // An attribute has text; `data` would be a second member of the envelope.
    const received = Object.fromEntries(
      Object.entries(attributes).filter(
        ([name, value]) => value !== "" && name !== "data" && !Object.hasOwn(claimed, name),
      ),
    );
    const contentType = Object.keys(headers).find((name) => name.toLowerCase() === "content-type");
    const made: Record<string, string> = { specversion: "1.0", id: row.id };
    for (const [name, template] of templates) {
      const value = template.render(fields);
      if (value !== "") made[name] = value;
      else if (name !== "subject" && received[name] === undefined)
        throw new PublishError(
          "address_empty",
          `the ${name} of the CloudEvent is empty: cloudEvents.${name} gave no text for this row`,
        );
    }
    if (row.createdAt !== null) made.time = row.createdAt.toISOString();
    const event = { ...made, ...received };
    const type = contentType === undefined ? undefined : headers[contentType];
    if (settings.mode === "binary") return { body, headers: { ...headers, ...attributeHeaders(event, binding) } };
    const { [contentType ?? ""]: _type, ...rest } = headers;
    return { body: envelope(event, type, body), headers: { ...rest, "content-type": STRUCTURED } };
  };
}

const STRUCTURED = "application/cloudevents+json; charset=utf-8";

/** JSON format, section 3: JSON data keeps its characters, other text becomes a string. */
function envelope(attributes: Readonly<Record<string, string>>, contentType: string | undefined, body: string): string {
  const isData = parsedJson(body) !== undefined;
  const datacontenttype = isData ? contentType : isJsonType(contentType) ? "text/plain" : contentType;
  const members = Object.entries({ ...attributes, ...(datacontenttype === undefined ? {} : { datacontenttype }) });
  const written = members.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`);
  return `{${written.join(",")},"data":${isData ? body : JSON.stringify(body)}}`;
}

/** No content type means JSON. */
function isJsonType(contentType: string | undefined): boolean {
  return contentType === undefined || /^[^;]*[/+]json\s*(?:;|$)/i.test(contentType);
}

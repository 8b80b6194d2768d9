import { evaluateJsonPath, itemTexts, JsonDocument, memberText } from "./jsonDocument.ts";
import { parseJsonPath } from "./jsonPath.ts";

/** How the messages of one request are written: a JSON text a line, or the items of a list in one JSON document. */
export type BatchForm =
  | { readonly kind: "lines" }
  | {
      readonly kind: "list";
      /** The path to the list, from the root down. */
      readonly names: readonly string[];
    };

export type SplitBatch =
  | { readonly kind: "messages"; readonly bodies: readonly Buffer[] }
  | { readonly kind: "invalid_json" }
  /** `reason` is addressed to the sender. */
  | { readonly kind: "no_list"; readonly reason: string }
  | { readonly kind: "too_many" };

/** Reads a path to a list, such as `$.events[*]`. @returns the names of the members that lead to it @throws Error */
export function parseListPath(text: string): readonly string[] {
  const path = text.trim();
  if (!path.endsWith("[*]")) {
    throw new Error(`${JSON.stringify(text)} must end with [*], the items of a list, for example $.events[*] or $[*]`);
  }
  const { segments } = parseJsonPath(path.slice(0, -"[*]".length));
  const names = segments.filter((segment) => typeof segment === "string");
  if (names.length < segments.length) {
    throw new Error(`${JSON.stringify(text)} leads through a list: name the members of objects before [*]`);
  }
  return names;
}

/** Splits the body of a request into its messages, byte for byte. @returns lines may be no JSON; items of a list are */
export function splitBatch(body: Buffer, form: BatchForm, maxItems: number): SplitBatch {
  return form.kind === "lines" ? splitLines(body, maxItems) : splitList(body, form.names, maxItems);
}

function splitLines(body: Buffer, maxItems: number): SplitBatch {
  const bodies: Buffer[] = [];
  for (let start = 0; start < body.length; ) {
    const newline = body.indexOf(NEWLINE, start);
    const end = newline < 0 ? body.length : newline;
    const line = body.subarray(start, end);
    start = end + 1;
    if (line.every(isBlank)) continue;
    if (bodies.length === maxItems) return { kind: "too_many" };
    bodies.push(line);
  }
  return { kind: "messages", bodies };
}

function splitList(body: Buffer, names: readonly string[], maxItems: number): SplitBatch {
  const document = JsonDocument.parse(body);
  if (document === null) return { kind: "invalid_json" };
  const place = `$${names.map((name) => `.${name}`).join("")}`;
  const list = evaluateJsonPath({ text: place, segments: names }, document.value);
  if (!Array.isArray(list)) return { kind: "no_list", reason: `no list of messages at ${place}` };
  if (list.length > maxItems) return { kind: "too_many" };
  const text = names.reduce((json, name) => memberText(json, name) ?? "", document.text);
  return { kind: "messages", bodies: itemTexts(text).map((item) => Buffer.from(item)) };
}

const NEWLINE = 0x0a;
const BLANKS = new Set([0x20, 0x09, 0x0d]);
const isBlank = (byte: number): boolean => BLANKS.has(byte);

import { isUtf8 } from "node:buffer";
import { isSafeNumber } from "lossless-json";
import type { JsonPath } from "./jsonPath.ts";

/** A parsed JSON text that keeps the digits of its numbers. */
export class JsonDocument {
  readonly text: string;
  readonly value: unknown;
  #withRiskyNumbersAsText: { readonly value: unknown } | undefined;

  /** @returns null when the bytes are not UTF-8 or the text is not JSON */
  static parse(body: Buffer): JsonDocument | null {
    const text = jsonText(body);
    if (text === null) return null;
    try {
      return new JsonDocument(text);
    } catch (error) {
      if (error instanceof SyntaxError) return null;
      throw error;
    }
  }

  /** @throws SyntaxError when the text is not JSON */
  constructor(text: string) {
    this.text = text;
    this.value = JSON.parse(text);
  }

  /**
   * The scalar at a path as text. Different numbers give different texts, even if a double cannot tell them apart
   * (`12345678901234567890` and `...891`): else the second message would count as a duplicate of the first and be lost.
   *
   * @returns null for null, an object, an array, the empty string and a missing value
   */
  scalarAt(path: JsonPath): string | null {
    const value = evaluateJsonPath(path, this.value);
    if (typeof value === "string") return value === "" ? null : value;
    if (typeof value === "boolean") return String(value);
    if (typeof value !== "number") return null;
    if (!MAY_LOSE_DIGITS.test(this.text)) return String(value);
    this.#withRiskyNumbersAsText ??= { value: JSON.parse(quoteRiskyNumbers(this.text)) };
    const source = evaluateJsonPath(path, this.#withRiskyNumbersAsText.value);
    return typeof source !== "string" || isSafeNumber(source) ? String(value) : source;
  }
}

/**
 * @param document any parsed JSON
 * @returns the value (null included), or undefined when the document has none there. Only own members of plain objects
 * and items of arrays count: `$.constructor` or `$.items.length` find nothing.
 */
export function evaluateJsonPath(path: JsonPath, document: unknown): unknown {
  let value = document;
  for (const segment of path.segments) {
    value = typeof segment === "number" ? item(value, segment) : member(value, segment);
    if (value === undefined) return undefined;
  }
  return value;
}

export function member(value: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value) || !Object.hasOwn(value, name))
    return undefined;
  return (value as Readonly<Record<string, unknown>>)[name];
}

function item(value: unknown, index: number): unknown {
  return Array.isArray(value) ? value.at(index) : undefined;
}

/** Parses valid JSON: a number becomes a text if a double may lose its digits. */
export function parseWithExactNumbers(json: string): unknown {
  return JSON.parse(MAY_LOSE_DIGITS.test(json) ? quoteRiskyNumbers(json) : json);
}

/** The text of a member as written, the last one of a repeated name. @param json valid JSON whose value is an object */
export function memberText(json: string, name: string): string | undefined {
  let found: string | undefined;
  visitParts(json, (text, key) => {
    if (key === name) found = text;
  });
  return found;
}

/** The texts of the items of a list, unchanged. @param json a valid JSON text whose value is an array */
export function itemTexts(json: string): readonly string[] {
  const items: string[] = [];
  visitParts(json, (text) => items.push(text));
  return items;
}

/** Visits the members of an object, or the items of a list, which have no names. */
function visitParts(json: string, visit: (text: string, name: string | undefined) => void): void {
  let depth = 0;
  let name: string | undefined;
  let start = 0;
  for (let at = 0; at < json.length; at++) {
    const character = json[at];
    if (character === '"') {
      at = closingQuote(json, at);
    } else if (character === ":" && depth === 1) {
      name = JSON.parse(json.slice(start, at)) as string;
      start = at + 1;
    } else if (character === "{" || character === "[") {
      depth++;
      if (depth === 1) start = at + 1;
    } else if (character === "}" || character === "]" || (character === "," && depth === 1)) {
      const text = depth === 1 ? json.slice(start, at).trim() : "";
      // Only an empty object or list has an empty part.
      if (text !== "") visit(text, name);
      if (character === ",") start = at + 1;
      else depth--;
    }
  }
}

/** A double tells all numbers of up to 15 digits without an exponent apart. */
const MAY_LOSE_DIGITS = /[\d.]{16,}|\d[eE][+-]?\d/;
const LONGEST_SAFE_NUMBER = 15;

/**
 * Quotes the numbers of valid JSON that {@link MAY_LOSE_DIGITS}. Parsing the result natively keeps the meaning of
 * repeated and `__proto__` keys and needs no stack: a body nested 10,000 deep would break recursive lossless parsers.
 */
function quoteRiskyNumbers(json: string): string {
  let quoted = "";
  let copied = 0;
  let at = 0;
  while (at < json.length) {
    const character = json.charCodeAt(at);
    if (character === QUOTE) {
      at = closingQuote(json, at) + 1;
    } else if (character === MINUS || isDigit(character)) {
      const start = at;
      let risky = false;
      for (; isNumberPart(json.charCodeAt(at)); at++) risky ||= (json.charCodeAt(at) | LOWER_CASE) === EXPONENT;
      if (!risky && at - start <= LONGEST_SAFE_NUMBER) continue;
      quoted += `${json.slice(copied, start)}"${json.slice(start, at)}"`;
      copied = at;
    } else {
      at++;
    }
  }
  return quoted + json.slice(copied);
}

function closingQuote(json: string, openingQuote: number): number {
  let at = openingQuote + 1;
  for (let character = json.charCodeAt(at); character !== QUOTE; character = json.charCodeAt(at)) {
    at += character === BACKSLASH ? 2 : 1;
  }
  return at;
}

const QUOTE = '"'.charCodeAt(0);
const BACKSLASH = "\\".charCodeAt(0);
const MINUS = "-".charCodeAt(0);
const PLUS = "+".charCodeAt(0);
const DOT = ".".charCodeAt(0);
const EXPONENT = "e".charCodeAt(0);
/** The bit that makes an ASCII letter lower case. */
const LOWER_CASE = 0x20;
const isDigit = (character: number): boolean => character >= 0x30 && character <= 0x39;
const isNumberPart = (character: number): boolean =>
  isDigit(character) ||
  character === DOT ||
  character === MINUS ||
  character === PLUS ||
  (character | LOWER_CASE) === EXPONENT;

const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);

/**
 * The bytes of a JSON document as text; the JSON is not validated.
 *
 * @returns the text without a byte order mark, which parsers may ignore (RFC 8259, section 8.1) and most refuse; null
 * when the bytes are not UTF-8, since decoding would replace invalid bytes
 */
export function jsonText(body: Buffer): string | null {
  if (!isUtf8(body)) return null;
  const hasMark = body[0] === BYTE_ORDER_MARK[0] && body.indexOf(BYTE_ORDER_MARK) === 0;
  return body.toString("utf8", hasMark ? BYTE_ORDER_MARK.length : 0);
}

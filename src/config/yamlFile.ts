import {
  EVENT_ID,
  type Event,
  FAILSAFE_SCHEMA,
  getScalarValue,
  load,
  mergeTag,
  nullCoreTag,
  parseEvents,
  realMapTag,
  YAMLException,
} from "js-yaml";
import { errorText } from "../model/errors.ts";
import { formatKeyPath, type KeyPath } from "./keyPath.ts";

/**
 * A YAML value before the schema gives it a type. Every scalar is the text of the file (`password: 0123` keeps its
 * zero, `onError: no` stays `no`); only a missing value, `~` and `null` are null.
 */
export type Raw = string | null | RawList | RawMap;
type RawList = Raw[];
export type RawMap = Map<string, Raw>;

export interface YamlFile {
  readonly root: RawMap;
  /** Line, from 1, of each key path as `formatKeyPath` writes it; none for values behind an alias or a merge. */
  readonly lines: ReadonlyMap<string, number>;
}

const SCHEMA = FAILSAFE_SCHEMA.withTags(nullCoreTag, mergeTag, realMapTag);

/** A YAML file that is not a configuration; the message has the place and nothing of the content. */
class YamlError extends Error {
  override readonly name = "YamlError";
}

/**
 * Reads a YAML document with a mapping at the top.
 *
 * @throws YamlError with line and column for anything else: syntax, duplicate keys, an empty file, a list
 */
export function parseYaml(text: string): YamlFile {
  const source = text.replace(/^\uFEFF/, "");
  let document: unknown;
  try {
    document = load(source, { schema: SCHEMA, maxAliases: 1000 });
  } catch (error) {
    throw new YamlError(explain(source, error), { cause: undefined });
  }
  if (document === null) throw new YamlError(EMPTY);
  if (!(document instanceof Map)) {
    const what = Array.isArray(document) ? "a list" : "a single value";
    throw new YamlError(`line 1, column 1: expected a mapping such as "database:", found ${what}`);
  }
  const lines = linesOf(source);
  return { root: checkedMap(document, [], lines), lines };
}

const EMPTY =
  "line 1, column 1: the file is empty; it must be a complete configuration, or not exist when the SVC_ variables set everything";

function explain(source: string, error: unknown): string {
  if (!(error instanceof YAMLException)) return errorText(error);
  if (error.reason.includes("the input is empty")) return EMPTY;
  // The snippet that js-yaml adds to its message is left out: it can show a password.
  if (error.mark !== undefined) {
    const place = `line ${error.mark.line + 1}, column ${error.mark.column + 1}`;
    return `${place}: ${withoutNames(error.reason)}${hint(source, error)}`;
  }
  const second = source.split("\n").findIndex((line, index) => index > 0 && /^---(\s|$)/.test(line));
  return second > 0 ? `line ${second + 1}, column 1: ${error.reason}` : error.reason;
}

/**
 * Omits the names of aliases and tags: an unquoted password that begins with `*` or `!` is taken for one. A name may
 * hold quotes, and ends at the last one.
 */
function withoutNames(reason: string): string {
  return reason.replaceAll(/\s*(?:".*"|!<.*>|(?<=: ).*)/gs, "").replace(/:\s*$/, "");
}

function hint(source: string, error: YAMLException): string {
  if (error.reason === "duplicated mapping key") return " (each key may stand once in its section)";
  if (source.split("\n")[error.mark?.line ?? 0]?.startsWith("\t") === true)
    return " (YAML indents with spaces, not tabs)";
  if (/\b(?:alias|tag)\b/.test(error.reason)) return " (quote a value that begins with * or !)";
  if (error.reason.startsWith("bad indentation")) return " (quote a value that holds a colon followed by a space)";
  return "";
}

function checked(value: unknown, path: KeyPath, lines: ReadonlyMap<string, number>): Raw {
  if (value instanceof Map) return checkedMap(value, path, lines);
  if (Array.isArray(value)) return value.map((item, index) => checked(item, [...path, index], lines));
  return typeof value === "string" ? value : null;
}

function checkedMap(map: ReadonlyMap<unknown, unknown>, path: KeyPath, lines: ReadonlyMap<string, number>): RawMap {
  const result: RawMap = new Map();
  for (const [key, value] of map) {
    if (typeof key !== "string" || key === "__proto__") {
      const line = lines.get(formatKeyPath(path)) ?? 1;
      const what = typeof key === "string" ? `the name "${key}"` : "a key that is not a text";
      throw new YamlError(`line ${line}, column 1: ${formatKeyPath(path) || "the document"} holds ${what}`);
    }
    result.set(key, checked(value, [...path, key], lines));
  }
  return result;
}

/** A collection that is open between its events, with the step of its next value. */
interface Open {
  readonly path: KeyPath;
  readonly mapping: boolean;
  /** Next index of a list; in a mapping the key that waits for its value. */
  step: string | number | undefined;
}

function linesOf(source: string): ReadonlyMap<string, number> {
  const lines = new Map<string, number>();
  const open: Open[] = [];
  const lineAt = lineCounter(source);
  for (const event of parseEvents(source, {})) {
    if (event.type === EVENT_ID.POP) open.pop();
    else if (event.type !== EVENT_ID.DOCUMENT) visit(event);
    else open.push({ path: [], mapping: false, step: undefined });
  }
  return lines;

  function visit(event: Exclude<Event, { type: typeof EVENT_ID.POP | typeof EVENT_ID.DOCUMENT }>): void {
    const parent = open.at(-1);
    if (parent === undefined) return;
    if (parent.mapping && parent.step === undefined && event.type === EVENT_ID.SCALAR) {
      parent.step = getScalarValue(source, event);
      lines.set(formatKeyPath([...parent.path, parent.step]), lineAt(event.valueStart));
      return;
    }
    const path = parent.step === undefined ? parent.path : [...parent.path, parent.step];
    if (typeof parent.step === "number") {
      if ("start" in event) lines.set(formatKeyPath(path), lineAt(event.start));
      else if (event.type === EVENT_ID.SCALAR) lines.set(formatKeyPath(path), lineAt(event.valueStart));
      parent.step += 1;
    } else parent.step = undefined;
    if (event.type === EVENT_ID.MAPPING) open.push({ path, mapping: true, step: undefined });
    if (event.type === EVENT_ID.SEQUENCE) open.push({ path, mapping: false, step: 0 });
  }
}

/** Gives the line of an offset, counted from 1; offsets must not decrease. */
function lineCounter(source: string): (offset: number) => number {
  let line = 1;
  let position = 0;
  return (offset) => {
    for (; position < offset; position += 1) if (source[position] === "\n") line += 1;
    return line;
  };
}

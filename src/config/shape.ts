import { type ConfigProblem, errorText } from "../model/errors.ts";
import type { SchemaNode } from "../model/schema.ts";
import { describeOrigin, formatKeyPath, type KeyPath, type Origins, originAt } from "./keyPath.ts";
import { didYouMean, explainNoKind, fittingKinds, type Kinds, presentKeys, requiredKeys } from "./kinds.ts";
import type { Raw, RawMap } from "./yamlFile.ts";

export interface Finding {
  readonly path: KeyPath;
  readonly message: string;
}

interface ShapeOptions {
  readonly lookup: Lookup;
  /** Reads a file as UTF-8. */
  readonly readFile: (path: string) => string;
  /** Whether the value at a path was set by a variable, and so holds no placeholders. */
  readonly fromEnvironment: (path: KeyPath) => boolean;
}

interface Shaped {
  /** Plain JSON by the schema's types, with `kind` in each entry that has kinds, and without unknown keys. */
  readonly data: Readonly<Record<string, unknown>>;
  readonly problems: readonly Finding[];
  readonly warnings: readonly Finding[];
  /** Keys that the schema does not have in their place; each has a warning too. */
  readonly unknownKeys: readonly KeyPath[];
  /** Keys of blocks that stand in the file as the text of that key. */
  readonly textKeys: readonly KeyPath[];
  /** The files of `file:` secrets, by their key path. */
  readonly secretFiles: ReadonlyMap<string, string>;
}

/**
 * Gives the text values of the file and the environment the types of the schema: fills placeholders, reads `file:`
 * secrets, chooses kinds, and sets unknown keys aside. Values that do not fit stay, for the validation to refuse.
 */
export function shape(root: RawMap, schema: SchemaNode, options: ShapeOptions): Shaped {
  const problems: Finding[] = [];
  const warnings: Finding[] = [];
  const unknownKeys: KeyPath[] = [];
  const textKeys: KeyPath[] = [];
  const secretFiles = new Map<string, string>();
  const data = properties(schema, root, [], []);
  return { data, problems, warnings, unknownKeys, textKeys, secretFiles };

  function value(node: SchemaNode, raw: Raw | undefined, path: KeyPath): unknown {
    if (raw === null || raw === undefined) return undefined;
    if (node.type === "object" || node.kinds !== undefined) {
      if (raw instanceof Map) return block(node, raw, path);
      if (typeof raw === "string" && node.orKey !== undefined) {
        return textBlock(node.orKey, scalar(node.properties?.[node.orKey] ?? {}, raw, path), path);
      }
      problems.push({ path, message: `expected a mapping of keys, found ${whatIs(raw)}` });
      return undefined;
    }
    const isText = typeof raw === "string" && (node.items === undefined || node.items.type === "string");
    if (isText && node.items?.secret === true) return secretList(node.items, raw, path);
    if (isText && node.items?.whole === true) return wholeText(node.items, raw, path);
    if (isText) return scalar(node, raw, path);
    if (typeof raw === "string" && node.orCount !== undefined) return scalar({ type: "integer" }, raw, path);
    if (typeof raw === "string" && node.items?.orKey !== undefined)
      return textBlocks(node, node.items.orKey, raw, path);
    if (node.items !== undefined && Array.isArray(raw)) return list(node.items, raw, path);
    problems.push({
      path,
      message: `expected ${node.items === undefined ? "a single value" : "a list"}, found ${whatIs(raw)}`,
    });
    return undefined;
  }

  function list(items: SchemaNode, raw: readonly Raw[], path: KeyPath): unknown[] {
    return raw.map((item, index) => value(items, item, [...path, index]) ?? (item === null ? null : ""));
  }

  function block(node: SchemaNode, raw: RawMap, path: KeyPath): Record<string, unknown> | undefined {
    if (node.kinds !== undefined) return entry(node.kinds, raw, path);
    if (node.additionalProperties !== undefined) return map(node.additionalProperties, raw, path);
    return properties(node, raw, path, []);
  }

  /** A block that stands as the text of one of its keys. */
  function textBlock(key: string, text: unknown, path: KeyPath): Record<string, unknown> | undefined {
    textKeys.push([...path, key]);
    return text === undefined ? undefined : { [key]: text };
  }

  /** A list of these in one text. */
  function textBlocks(node: SchemaNode, key: string, raw: string, path: KeyPath): unknown[] | undefined {
    const texts = scalar(node, raw, path) as readonly string[] | undefined;
    return texts?.map((text, index) => textBlock(key, text, [...path, index]));
  }

  function map(node: SchemaNode, raw: RawMap, path: KeyPath): Record<string, unknown> {
    const result: Record<string, unknown> = {};
    for (const [name, item] of raw) {
      // An entry without content is still an entry: its problem lists the keys it needs.
      const shaped = value(node, item ?? (node.kinds === undefined ? item : new Map()), [...path, name]);
      if (shaped !== undefined) result[name] = shaped;
    }
    return result;
  }

  function properties(node: SchemaNode, raw: RawMap, path: KeyPath, elsewhere: KindKeys): Record<string, unknown> {
    const known = node.properties ?? {};
    const result: Record<string, unknown> = {};
    for (const [key, item] of raw) {
      const property = Object.hasOwn(known, key) ? known[key] : undefined;
      if (property === undefined) {
        unknownKeys.push([...path, key]);
        warnings.push({ path: [...path, key], message: unknownKeyMessage(key, Object.keys(known), elsewhere) });
        continue;
      }
      if (item === null) checkNothing(property, [...path, key]);
      const shaped = value(property, item, [...path, key]);
      if (shaped !== undefined) result[key] = shaped;
    }
    return result;
  }

  /** A key without a value counts as absent, which is probably a mistake for blocks and lists, above all `auth`. */
  function checkNothing(node: SchemaNode, path: KeyPath): void {
    if (node.kinds !== undefined) {
      const kinds = Object.entries(node.kinds).map(([name, kind]) => `${name} (${requiredKeys(kind).join(", ")})`);
      const message = `has no value: set the keys of one of its kinds, ${kinds.join(", ")}, or remove the key`;
      problems.push({ path, message });
    } else if ((node.type === "object" || node.type === "array") && node.default === undefined) {
      warnings.push({ path, message: "has no value and no effect: set its keys, or remove it" });
    }
  }

  function entry(kinds: Kinds, raw: RawMap, path: KeyPath): Record<string, unknown> | undefined {
    const present = presentKeys(raw);
    const type = raw.get("type");
    const typeName = typeof type === "string" ? type : undefined;
    const fitting = fittingKinds(kinds, present);
    const kind = fitting[0];
    const chosen = kind === undefined ? undefined : kinds[kind];
    if (kind === undefined || chosen === undefined) {
      problems.push({ path, message: explainNoKind(kinds, present, typeName) });
      return undefined;
    }
    // A kind whose keys the chosen one has too is not a rival: `provider` takes a `secret`, which is what `hmac` needs.
    const isRival = (name: string) => name === kind || !sharesKeys(kinds[name], chosen);
    const rivals = fitting.filter(isRival);
    if (rivals.length > 1) {
      warnings.push({ path, message: `has keys of ${rivals.join(" and ")} and is read as ${kind}: remove the others` });
    }
    if (typeName !== undefined && typeName !== kind) {
      const message = `has no effect: the keys that are set make this entry ${kind}, not ${JSON.stringify(typeName)}`;
      warnings.push({ path: [...path, "type"], message });
    }
    const others = Object.entries(kinds)
      .filter(([name]) => name !== kind)
      .map(([name, schema]): [string, readonly string[]] => [name, Object.keys(schema.properties ?? {})]);
    const rest: RawMap = new Map([...raw].filter(([key]) => key !== "type"));
    return { kind, ...properties(chosen, rest, path, others) };
  }

  function scalar(node: SchemaNode, raw: string, path: KeyPath): unknown {
    const text = options.fromEnvironment(path) ? raw : filled(node, raw, path);
    if (text === undefined) return undefined;
    if (node.secret === true && text.startsWith("file:")) return secretFile(text.slice("file:".length), path);
    return typed(node, text);
  }

  /** A list in one text; each item may be a `file:`. */
  function secretList(items: SchemaNode, raw: string, path: KeyPath): unknown[] | undefined {
    if (raw === "") return undefined;
    return raw.split(",").map((item, index) => scalar(items, item.trim(), [...path, index]) ?? "");
  }

  /** A text in the place of a list. */
  function wholeText(items: SchemaNode, raw: string, path: KeyPath): unknown[] | undefined {
    const text = scalar(items, raw, path);
    return text === undefined ? undefined : [text];
  }

  function filled(node: SchemaNode, raw: string, path: KeyPath): string | undefined {
    const { text, missing, literal } = substitute(raw, options.lookup);
    for (const name of new Set(missing)) {
      const message = `\${${name}} has no value: set the environment variable ${name}, or write a fallback as \${${name}:-fallback}`;
      problems.push({ path, message });
    }
    if (literal && node.syntax !== "expression") {
      const message = `holds "\${" that begins no placeholder and is taken literally; a placeholder is \${NAME} or \${NAME:-fallback}`;
      warnings.push({ path, message });
    }
    return missing.length > 0 ? undefined : text;
  }

  function secretFile(file: string, path: KeyPath): string | undefined {
    try {
      const text = secretIn(options.readFile(file));
      secretFiles.set(formatKeyPath(path), file);
      return text;
    } catch (error) {
      problems.push({ path, message: `cannot read the secret file ${JSON.stringify(file)}: ${errorText(error)}` });
      return undefined;
    }
  }
}

/** The secret that the text of a file holds. */
export function secretIn(text: string): string {
  return text.replace(/\r?\n$/, "");
}

/** The form of a value, without its text, which may be a credential that lost its key. */
function whatIs(raw: Raw): string {
  if (raw instanceof Map) return "a mapping";
  return Array.isArray(raw) ? "a list" : "a single value";
}

/** Whether every key that selects a kind is a key of another one. */
function sharesKeys(kind: SchemaNode = {}, other: SchemaNode): boolean {
  const keys = requiredKeys(kind).flatMap((each) => each.split(" or "));
  return keys.every((key) => Object.hasOwn(other.properties ?? {}, key));
}

/** Kinds other than the chosen one, with their keys. */
type KindKeys = readonly (readonly [kind: string, keys: readonly string[]])[];

function unknownKeyMessage(key: string, known: readonly string[], elsewhere: KindKeys): string {
  const owners = elsewhere.filter(([, keys]) => keys.includes(key)).map(([kind]) => kind);
  if (owners.length > 0) return `is ignored here: it is a key of the kind ${owners.join(" and ")}`;
  return `is not a known key and is ignored${didYouMean(key, known)}`;
}

/** The value of a text by its type; the text itself when it does not fit. An empty one means "not set". */
function typed(node: SchemaNode, text: string): unknown {
  if (text === "" && (node.type !== "string" || node.enum !== undefined || node.duration === true)) return undefined;
  if (node.type === "integer" && /^[+-]?\d+$/.test(text) && Number.isSafeInteger(Number(text))) return Number(text);
  if (node.type === "number" && /^[+-]?(\d+\.?\d*|\.\d+)$/.test(text)) return Number(text);
  if (node.type === "boolean" && /^(true|True|TRUE)$/.test(text)) return true;
  if (node.type === "boolean" && /^(false|False|FALSE)$/.test(text)) return false;
  if (node.type === "array") return text.split(",").map((item) => item.trim());
  return text;
}

/** Findings in the form of the report: the path as text and, at the end of the message, the origin of the value. */
export function toProblems(findings: readonly Finding[], origins: Origins): ConfigProblem[] {
  return findings.map(({ path, message }) => {
    const origin = originAt(origins, path);
    const place = origin === undefined ? "" : ` (${describeOrigin(origin)})`;
    return { path: formatKeyPath(path) || "configuration", message: `${message}${place}` };
  });
}

type Lookup = (name: string) => string | undefined;

interface Substitution {
  readonly text: string;
  /** Names without value and without fallback. */
  readonly missing: readonly string[];
  /** Whether a `${` without a placeholder was left unchanged. */
  readonly literal: boolean;
}

const NAME = /[A-Za-z_][\w.]*/y;
// Only before a placeholder: `$${"id": id}` is JSONata.
const ESCAPED = /\$\$\{(?=[A-Za-z_][\w.]*(?:\}|:-))/y;

/**
 * Replaces `${NAME}` and `${NAME:-fallback}` (spec, "Value formats"). As in a shell, the fallback also replaces an
 * empty variable, and may hold placeholders. `$${NAME}` gives a literal `${NAME}`; a `${` that begins no placeholder
 * stays, because JSONata has it too. Inserted values are not searched.
 */
export function substitute(text: string, lookup: Lookup): Substitution {
  const missing: string[] = [];
  let literal = false;
  let position = 0;
  const result = until(undefined);
  return { text: result, missing, literal };

  /** Reads up to `end`, or to the end of the text. */
  function until(end: "}" | undefined): string {
    let output = "";
    while (position < text.length && text[position] !== end) {
      ESCAPED.lastIndex = position;
      if (ESCAPED.test(text)) {
        output += "${";
        position += 3;
      } else if (text.startsWith("${", position)) output += placeholder();
      else output += text[position++];
    }
    return output;
  }

  function placeholder(): string {
    const start = position;
    NAME.lastIndex = start + 2;
    const name = NAME.exec(text)?.[0];
    const end = start + 2 + (name?.length ?? 0);
    if (name !== undefined && text[end] === "}") {
      position = end + 1;
      const value = lookup(name);
      if (value === undefined) missing.push(name);
      return value ?? "";
    }
    if (name !== undefined && text.startsWith(":-", end)) {
      position = end + 2;
      const missingBefore = missing.length;
      const fallback = until("}");
      if (text[position] === "}") {
        position += 1;
        const value = lookup(name);
        if (value === undefined || value === "") return fallback;
        // The fallback is not used, so what it lacks does not matter.
        missing.length = missingBefore;
        return value;
      }
      missing.length = missingBefore;
    }
    literal = true;
    position = start + 2;
    return "${";
  }
}

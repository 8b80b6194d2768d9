import type { ConfigProblem } from "../model/errors.ts";
import { errorText } from "../model/errors.ts";
import type { SchemaNode } from "../model/schema.ts";
import { formatKeyPath, type KeyPath } from "./keyPath.ts";
import { didYouMean, explainNoKind, fittingKinds, type Kinds } from "./kinds.ts";
import { type Lookup, substitute } from "./placeholders.ts";
import type { Raw, RawMap } from "./yamlFile.ts";

/** A problem with its place. */
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
}

/**
 * Gives the text values of the file and the environment the types of the schema: fills placeholders, reads `file:` secrets, chooses
 * kinds, and sets unknown keys aside. Values that do not fit are passed on for the validation to refuse.
 */
export function shape(root: RawMap, schema: SchemaNode, options: ShapeOptions): Shaped {
  const problems: Finding[] = [];
  const warnings: Finding[] = [];
  const unknownKeys: KeyPath[] = [];
  const data = properties(schema, root, [], []);
  return { data, problems, warnings, unknownKeys };

  function value(node: SchemaNode, raw: Raw | undefined, path: KeyPath): unknown {
    if (raw === null || raw === undefined) return undefined;
    if (node.type === "object" || node.kinds !== undefined) {
      if (raw instanceof Map) return block(node, raw, path);
      problems.push({ path, message: `expected a mapping of keys, found ${whatIs(raw)}` });
      return undefined;
    }
    const isText = typeof raw === "string" && (node.items === undefined || node.items.type === "string");
    if (isText) return scalar(node, raw, path);
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

  function map(node: SchemaNode, raw: RawMap, path: KeyPath): Record<string, unknown> {
    const result: Record<string, unknown> = {};
    for (const [name, item] of raw) {
      // An entry without content is an entry all the same, and says which keys it needs.
      const shaped = value(node, item ?? (node.kinds === undefined ? item : new Map()), [...path, name]);
      if (shaped !== undefined) result[name] = shaped;
    }
    return result;
  }

  function properties(node: SchemaNode, raw: RawMap, path: KeyPath, elsewhere: Strangers): Record<string, unknown> {
    const known = node.properties ?? {};
    const result: Record<string, unknown> = {};
    for (const [key, item] of raw) {
      const property = Object.hasOwn(known, key) ? known[key] : undefined;
      if (property === undefined) {
        unknownKeys.push([...path, key]);
        warnings.push({ path: [...path, key], message: strangerMessage(key, Object.keys(known), elsewhere) });
        continue;
      }
      if (item === null) checkNothing(property, [...path, key]);
      const shaped = value(property, item, [...path, key]);
      if (shaped !== undefined) result[key] = shaped;
    }
    return result;
  }

  /** A key without a value counts as absent; for some that is hardly what is meant, above all for `auth`. */
  function checkNothing(node: SchemaNode, path: KeyPath): void {
    if (node.kinds !== undefined) {
      const kinds = Object.entries(node.kinds).map(([name, kind]) => `${name} (${(kind.required ?? []).join(", ")})`);
      const message = `has no value: set the keys of one of its kinds, ${kinds.join(", ")}, or remove the key`;
      problems.push({ path, message });
    } else if ((node.type === "object" || node.type === "array") && node.default === undefined) {
      warnings.push({ path, message: "has no value and no effect: set its keys, or remove it" });
    }
  }

  function entry(kinds: Kinds, raw: RawMap, path: KeyPath): Record<string, unknown> | undefined {
    const present = [...raw].filter(([, item]) => item !== null).map(([key]) => key);
    const type = raw.get("type");
    const typeName = typeof type === "string" ? type : undefined;
    const fitting = fittingKinds(kinds, present);
    const kind = fitting[0];
    const chosen = kind === undefined ? undefined : kinds[kind];
    if (kind === undefined || chosen === undefined) {
      problems.push({ path, message: explainNoKind(kinds, present, typeName) });
      return undefined;
    }
    if (fitting.length > 1) {
      warnings.push({ path, message: `has the keys of the kinds ${fitting.join(" and ")}; it is taken as ${kind}` });
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
      return options.readFile(file).replace(/\r?\n$/, "");
    } catch (error) {
      problems.push({ path, message: `cannot read the secret file ${JSON.stringify(file)}: ${errorText(error)}` });
      return undefined;
    }
  }
}

/** What a value is, without the value: text in the place of a block may be a credential that lost its key. */
function whatIs(raw: Raw): string {
  if (raw instanceof Map) return "a mapping";
  return Array.isArray(raw) ? "a list" : "a single value";
}

/** Kinds other than the chosen one, with their keys. */
type Strangers = readonly (readonly [kind: string, keys: readonly string[]])[];

function strangerMessage(key: string, known: readonly string[], elsewhere: Strangers): string {
  const owners = elsewhere.filter(([, keys]) => keys.includes(key)).map(([kind]) => kind);
  if (owners.length > 0) return `is ignored here: it is a key of the kind ${owners.join(" and ")}`;
  return `is no known key and is ignored${didYouMean(key, known)}`;
}

/** The value that a text stands for; the text itself when it stands for none of this type. Empty stands for "not set". */
function typed(node: SchemaNode, text: string): unknown {
  if (text === "" && (node.type !== "string" || node.enum !== undefined || node.duration === true)) return undefined;
  if (node.type === "integer" && /^[+-]?\d+$/.test(text) && Number.isSafeInteger(Number(text))) return Number(text);
  if (node.type === "number" && /^[+-]?(\d+\.?\d*|\.\d+)$/.test(text)) return Number(text);
  if (node.type === "boolean" && /^(true|True|TRUE)$/.test(text)) return true;
  if (node.type === "boolean" && /^(false|False|FALSE)$/.test(text)) return false;
  if (node.type === "array") return text.split(",").map((item) => item.trim());
  return text;
}

/** Findings as they are reported: the path as text and, at the end, where the value came from. */
export function toProblems(findings: readonly Finding[], where: (path: KeyPath) => string): ConfigProblem[] {
  return findings.map(({ path, message }) => {
    const place = where(path);
    return { path: formatKeyPath(path) || "configuration", message: place === "" ? message : `${message} (${place})` };
  });
}

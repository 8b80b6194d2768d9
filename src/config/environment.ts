import type { ConfigProblem } from "../model/errors.ts";
import type { SchemaNode } from "../model/schema.ts";
import { formatKeyPath, type KeyPath, type Origin } from "./keyPath.ts";
import { didYouMean } from "./kinds.ts";
import type { Raw, RawMap } from "./yamlFile.ts";

/** The process's variables; `process.env` fits. */
export type Environment = Readonly<Record<string, string | undefined>>;

const ENV_PREFIX = "SVC_";
/** Names the configuration file; it is not a key of the configuration. */
export const CONFIG_FILE_VARIABLE = "SVC_CONFIG_FILE";
/** Variables of the project's own test suite. */
const TEST_PREFIX = "SVC_TEST_";

/** The variables that set configuration keys, in a fixed order: name and value. */
export function configVariables(env: Environment): [string, string][] {
  return Object.entries(env)
    .filter((entry): entry is [string, string] => entry[1] !== undefined && entry[0].startsWith(ENV_PREFIX))
    .filter(([name]) => name !== CONFIG_FILE_VARIABLE && !name.startsWith(TEST_PREFIX))
    .sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
}

interface Overlay {
  readonly problems: readonly ConfigProblem[];
  /** Variables that set nothing. */
  readonly unknown: readonly ConfigProblem[];
  readonly origins: ReadonlyMap<string, Origin>;
}

/**
 * Puts the `SVC_` variables over the values of the file (spec, "Configuration resource"; design, "Maps in variables").
 *
 * @param root the file's values; changed in place
 * @param variables from {@link configVariables}
 * @param schema the schema of the whole configuration
 */
export function overlayEnvironment(
  root: RawMap,
  variables: readonly (readonly [string, string])[],
  schema: SchemaNode,
): Overlay {
  const problems: ConfigProblem[] = [];
  const origins = new Map<string, Origin>();
  const unknown: string[] = [];
  for (const [name, value] of variables) {
    const target = resolve(name.slice(ENV_PREFIX.length), schema, root);
    if (target === undefined) unknown.push(name);
    // Compose files and charts set a variable to nothing for "not set"; only a text may be empty on purpose.
    else if (value === "" && !isPlainText(target.node)) continue;
    else {
      const problem = assign(root, target.path, value);
      if (problem !== undefined) problems.push({ path: name, message: problem });
      else origins.set(formatKeyPath(target.path), { kind: "environment", name });
    }
  }
  return { problems, origins, unknown: unknown.map((name) => unknownVariable(name, schema, root)) };
}

function isPlainText(node: SchemaNode): boolean {
  return node.type === "string" && node.enum === undefined && node.duration !== true;
}

interface Target {
  readonly path: KeyPath;
  readonly node: SchemaNode;
}

/** Finds the key that the rest of a variable's name means; the rest is `undefined` when nothing is left. */
function resolve(rest: string | undefined, node: SchemaNode, raw: Raw | undefined): Target | undefined {
  if (node.kinds !== undefined) return first(Object.values(node.kinds), (kind) => resolve(rest, withType(kind), raw));
  if (rest === undefined) return isLeaf(node) ? { path: [], node } : undefined;
  if (node.properties !== undefined) {
    return first(Object.entries(node.properties), ([key, property]) =>
      under(key, property, after(rest, key.toUpperCase()), raw),
    );
  }
  if (node.items !== undefined) return resolveItem(rest, node.items, raw);
  return node.additionalProperties === undefined ? undefined : resolveEntry(rest, node.additionalProperties, raw);
}

function resolveItem(rest: string, items: SchemaNode, raw: Raw | undefined): Target | undefined {
  const index = /^\d{1,4}(?=_|$)/.exec(rest)?.[0];
  if (index === undefined) return undefined;
  const item = Array.isArray(raw) ? raw[Number(index)] : undefined;
  const target = resolve(after(rest, index)?.rest, items, item);
  return target && { path: [Number(index), ...target.path], node: target.node };
}

/** An entry of a map: an existing one, in any letter case; else a new one in lower case, without underscores. */
function resolveEntry(rest: string, node: SchemaNode, raw: Raw | undefined): Target | undefined {
  const names = raw instanceof Map ? [...raw.keys()].sort((a, b) => b.length - a.length) : [];
  const existing = first(names, (name) => under(name, node, after(rest, variablePart(name)), raw));
  if (existing !== undefined) return existing;
  if (isLeaf(node)) return { path: [rest.toLowerCase()], node };
  const name = /^[^_]+/.exec(rest)?.[0];
  return name === undefined ? undefined : under(name.toLowerCase(), node, after(rest, name), raw);
}

function under(key: string, node: SchemaNode, left: Left | undefined, raw: Raw | undefined): Target | undefined {
  if (left === undefined) return undefined;
  const target = resolve(left.rest, node, raw instanceof Map ? raw.get(key) : undefined);
  return target && { path: [key, ...target.path], node: target.node };
}

interface Left {
  readonly rest: string | undefined;
}

/** The rest of a name after its first part; undefined when it does not begin with that part. */
function after(rest: string, part: string): Left | undefined {
  if (rest === part) return { rest: undefined };
  return rest.startsWith(`${part}_`) ? { rest: rest.slice(part.length + 1) } : undefined;
}

/** A map entry's name in a variable, where dashes and dots are underscores. */
function variablePart(name: string): string {
  return name.toUpperCase().replaceAll(/[^A-Z0-9_]/g, "_");
}

function isLeaf(node: SchemaNode): boolean {
  const list = node.type === "array" && node.items?.type === "string";
  return list || (node.type !== "object" && node.type !== "array" && node.kinds === undefined);
}

function withType(kind: SchemaNode): SchemaNode {
  return { ...kind, properties: { type: { type: "string" }, ...kind.properties } };
}

function first<T, R>(items: Iterable<T>, find: (item: T) => R | undefined): R | undefined {
  for (const item of items) {
    const result = find(item);
    if (result !== undefined) return result;
  }
  return undefined;
}

/** Sets the value at a path and creates the blocks above it. @returns what is wrong, if anything */
function assign(root: RawMap, path: KeyPath, value: string): string | undefined {
  let holder: Raw = root;
  for (const [index, step] of path.entries()) {
    const next = path[index + 1];
    const current: Raw | undefined = holder instanceof Map ? holder.get(String(step)) : (holder as Raw[])[Number(step)];
    const block: Raw = next === undefined ? value : blockFor(next, current);
    if (holder instanceof Map) holder.set(String(step), block);
    else if (Array.isArray(holder)) {
      if (Number(step) > holder.length) {
        return `sets item ${step} of ${formatKeyPath(path.slice(0, index))}, which has ${holder.length}: items are counted from 0 without a gap`;
      }
      holder[Number(step)] = block;
    }
    holder = block;
  }
  return undefined;
}

function blockFor(step: string | number, current: Raw | undefined): Raw {
  if (typeof step === "number") return Array.isArray(current) ? current : [];
  return current instanceof Map ? current : new Map();
}

function unknownVariable(name: string, schema: SchemaNode, root: RawMap): ConfigProblem {
  const segments = name.slice(ENV_PREFIX.length).split("_");
  const known = variableNames(schema, root, ENV_PREFIX, segments[1] ?? "NAME");
  return { path: name, message: `sets nothing: no configuration key has this name${didYouMean(name, known)}` };
}

/** The names of all variables, for the entries of `raw` and a new map entry named `entry`. */
function variableNames(node: SchemaNode, raw: Raw | undefined, prefix: string, entry: string): string[] {
  if (node.kinds !== undefined) {
    return Object.values(node.kinds).flatMap((kind) => variableNames(withType(kind), raw, prefix, entry));
  }
  const child = (key: string) => (raw instanceof Map ? raw.get(key) : undefined);
  const own = isLeaf(node) ? [prefix] : [];
  if (node.properties !== undefined) {
    return Object.entries(node.properties).flatMap(([key, property]) =>
      variableNames(property, child(key), join(prefix, key.toUpperCase()), entry),
    );
  }
  if (node.items !== undefined) {
    const items = Array.isArray(raw) ? raw : [];
    const inside = node.items;
    return [...items, undefined]
      .flatMap((item, index) => variableNames(inside, item, join(prefix, `${index}`), entry))
      .concat(own);
  }
  if (node.additionalProperties === undefined) return own;
  const value = node.additionalProperties;
  const names = raw instanceof Map ? [...raw.keys()] : [];
  return [...new Set([...names.map(variablePart), entry])].flatMap((name) =>
    variableNames(value, child(name), join(prefix, name), "NAME"),
  );
}

function join(prefix: string, part: string): string {
  return prefix === ENV_PREFIX ? `${prefix}${part}` : `${prefix}_${part}`;
}

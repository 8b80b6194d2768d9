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
    const target = find(name.slice(ENV_PREFIX.length), schema, root);
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

/** The key that a variable sets, by its name without the prefix. */
function find(wanted: string, schema: SchemaNode, root: RawMap): Variable | undefined {
  for (const variable of variables(schema, root, TOP, wanted, false)) if (variable.name === wanted) return variable;
  return undefined;
}

interface Variable {
  readonly name: string;
  readonly path: KeyPath;
  readonly node: SchemaNode;
}

const TOP: Pick<Variable, "name" | "path"> = { name: "", path: [] };

/**
 * The variables of a block: those of the entries that `raw` has, and of one new entry in each of its lists and maps.
 *
 * @param at the block
 * @param wanted the variable that is looked for, without its prefix: it names the new entries
 * @param listsAll whether to give every variable, or only variables with a name that can be `wanted`
 */
function* variables(
  node: SchemaNode,
  raw: Raw | undefined,
  { name, path }: Pick<Variable, "name" | "path">,
  wanted: string,
  listsAll: boolean,
): Generator<Variable> {
  if (node.kinds !== undefined) {
    for (const kind of Object.values(node.kinds)) {
      const withType = { ...kind, properties: { type: { type: "string" as const }, ...kind.properties } };
      yield* variables(withType, raw, { name, path }, wanted, listsAll);
    }
    return;
  }
  if (isLeaf(node)) yield { name, path, node };
  const prefix = name === "" ? "" : `${name}_`;
  const rest = wanted.startsWith(prefix) ? wanted.slice(prefix.length) : undefined;
  for (const [part, step, child] of children(node, raw, rest, path.length === 1 ? wanted.split("_")[1] : undefined)) {
    const inner = `${prefix}${part}`;
    if (!listsAll && wanted !== inner && !wanted.startsWith(`${inner}_`)) continue;
    const value = raw instanceof Map ? raw.get(String(step)) : Array.isArray(raw) ? raw[Number(step)] : undefined;
    yield* variables(child, value, { name: inner, path: [...path, step] }, wanted, listsAll);
  }
}

type Child = readonly [part: string, step: string | number, node: SchemaNode];

/**
 * The possible continuations of a variable's name, below a block.
 *
 * @param rest of the wanted name; undefined when it does not begin with that of the block
 * @param entry name of a new entry without a rest
 */
function children(node: SchemaNode, raw: Raw | undefined, rest: string | undefined, entry = "NAME"): Child[] {
  const { properties, items, additionalProperties: values } = node;
  if (properties !== undefined)
    return Object.entries(properties).map(([key, child]) => [key.toUpperCase(), key, child]);
  if (items !== undefined) {
    const known = [...(Array.isArray(raw) ? raw : []), undefined].map((_, index) => String(index));
    const given = /^\d{1,4}(?=_|$)/.exec(rest ?? "")?.[0];
    const indexes = new Set(given === undefined ? known : [...known, given]);
    return Array.from(indexes, (index) => [index, Number(index), items]);
  }
  if (values === undefined) return [];
  // An existing entry, in any letter case; else a new one in lower case, whose name has no underscore except in a map
  // of texts. A variable's name has no dash and no dot.
  const existing = raw instanceof Map ? [...raw.keys()].sort((a, b) => b.length - a.length) : [];
  const added = rest === undefined ? entry : isLeaf(values) ? rest : /^[^_]+/.exec(rest)?.[0];
  return [
    ...existing.map((key): Child => [key.toUpperCase().replaceAll(/[^A-Z0-9_]/g, "_"), key, values]),
    ...(added === undefined ? [] : [[added, added.toLowerCase(), values] as const]),
  ];
}

function isLeaf(node: SchemaNode): boolean {
  const list = node.type === "array" && (node.items?.type === "string" || node.items?.orKey !== undefined);
  return (
    list ||
    node.orKey !== undefined ||
    node.orCount !== undefined ||
    (node.type !== "object" && node.type !== "array" && node.kinds === undefined)
  );
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
  const every = variables(schema, root, TOP, name.slice(ENV_PREFIX.length), true);
  const known = Array.from(every, (variable) => `${ENV_PREFIX}${variable.name}`);
  return { path: name, message: `sets nothing: no configuration key has this name${didYouMean(name, known)}` };
}

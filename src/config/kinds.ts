import { distance } from "fastest-levenshtein";
import { ConfigError } from "../model/errors.ts";
import type { SchemaNode } from "../model/schema.ts";
import type { RawMap } from "./yamlFile.ts";

export type Kinds = Readonly<Record<string, SchemaNode>>;

/**
 * The kinds whose required keys are all present, in the order of the schema; the first one counts (spec, "Entry
 * kinds"). A `type` key decides nothing.
 */
export function fittingKinds(kinds: Kinds, present: readonly string[]): string[] {
  return Object.entries(kinds)
    .filter(([, schema]) => missingKeys(schema, present).length === 0)
    .map(([name]) => name);
}

/**
 * Explains that no kind fits: which keys the intended kind lacks. `type` names that kind; without it all kinds and the
 * keys each needs are listed, and the nearest is found by the keys.
 */
export function explainNoKind(kinds: Kinds, present: readonly string[], type: string | undefined): string {
  const named = type === undefined ? undefined : nearestName(type, Object.keys(kinds));
  const list = Object.entries(kinds).map(([name, schema]) => `${name} needs ${listed(requiredKeys(schema))}`);
  const all = `no kind fits; the required keys decide the kind: ${list.join("; ")}`;
  const nearest = named ?? nearestKind(kinds, present);
  if (nearest === undefined) return all;
  const schema = kinds[nearest] ?? {};
  const missing = missingKeys(schema, present);
  const misspelt = missing.flatMap((keys) => {
    const key = keys.split(" or ", 1)[0] ?? keys;
    const unknownKeys = present.filter(
      (name) => !/^type$|\./.test(name) && !Object.hasOwn(schema.properties ?? {}, name),
    );
    const meant = nearestName(key, unknownKeys);
    return meant === undefined ? [] : [` (is "${meant}" meant to be "${key}"?)`];
  });
  const which = named === undefined ? `${all}. Nearest is ${nearest}` : `cannot be of the kind ${named}`;
  return `${which}: ${listed(missing)} ${missing.length === 1 ? "is" : "are"} missing${misspelt.join("")}`;
}

function nearestKind(kinds: Kinds, present: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestScore = 0;
  for (const [name, schema] of Object.entries(kinds)) {
    const required = requiredKeys(schema);
    const known = present.filter((key) => Object.hasOwn(schema.properties ?? {}, key)).length;
    const isPresent = (key: string) => present.some((other) => other.toLowerCase() === key.toLowerCase());
    const having = required.filter((keys) => keys.split(" or ").some(isPresent)).length;
    const score = having / required.length + known / 100;
    if (score > bestScore) {
      best = name;
      bestScore = score;
    }
  }
  return best;
}

function missingKeys(schema: SchemaNode, present: readonly string[]): string[] {
  return requiredKeys(schema).filter((keys) => !keys.split(" or ").some((key) => present.includes(key)));
}

/** What a kind needs, alternatives joined: `path`, `token or tokens`. */
export function requiredKeys({ required = [], requiredAny = [] }: SchemaNode): string[] {
  return requiredAny.length === 0 ? [...required] : [...required, requiredAny.join(" or ")];
}

/** The keys of an entry that have a value, and `auth.provider` for those of its blocks. */
export function presentKeys(raw: RawMap): string[] {
  return [...raw].flatMap(([key, item]) => {
    if (item === null) return [];
    return item instanceof Map ? [key, ...presentKeys(item).map((inner) => `${key}.${inner}`)] : [key];
  });
}

function listed(keys: readonly string[]): string {
  return keys.length < 2 ? keys.join("") : `${keys.slice(0, -1).join(", ")} and ${keys.at(-1)}`;
}

/**
 * Checks a name that somebody gave.
 *
 * @param what it names, such as `destination`
 * @param place of the name, for the error
 * @param none said without any name to choose
 * @throws ConfigError that lists the names there are
 */
export function requireName(
  what: string,
  name: string,
  names: readonly string[],
  place: string,
  none = "there are none",
): void {
  if (names.includes(name)) return;
  const known = names.length === 0 ? none : `the ${what}s are ${names.join(", ")}`;
  const message = `there is no ${what} ${JSON.stringify(name)}: ${known}${didYouMean(name, names)}`;
  throw new ConfigError([{ path: place, message }]);
}

/** The known name that was probably meant; letter case and underscores do not count. Undefined if none is near. */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  const plain = (text: string) => text.toLowerCase().replaceAll(/[_-]/g, "");
  let best: string | undefined;
  // At most a third of the letters may differ.
  let bestDistance = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    const found = distance(plain(name), plain(candidate));
    if (found < bestDistance) {
      best = candidate;
      bestDistance = found;
    }
  }
  return best;
}

/** The nearest name as the end of a sentence: `; did you mean "orders"?`, or nothing when none is near. */
export function didYouMean(name: string, known: readonly string[]): string {
  const nearest = nearestName(name, known);
  return nearest === undefined ? "" : `; did you mean "${nearest}"?`;
}

type Keys = Readonly<Record<string, SchemaNode>>;

/** The schemas of a section's kinds. @param common the keys that every entry has besides those of its kind */
export function withCommonKeys<K extends Readonly<Record<string, { readonly schema: SchemaNode }>>, C extends Keys>(
  kinds: K,
  common: C,
): { readonly [N in keyof K]: WithKeys<K[N]["schema"], C> } {
  const schemas = Object.entries(kinds).map(([name, { schema }]) => [
    name,
    { ...schema, properties: { ...schema.properties, ...common } },
  ]);
  return Object.fromEntries(schemas) as { readonly [N in keyof K]: WithKeys<K[N]["schema"], C> };
}

type WithKeys<S, C> = Omit<S, "properties"> & {
  readonly properties: (S extends { readonly properties: infer P } ? P : object) & C;
};

/**
 * The answers of the service, described once: a schema for the OpenAPI document, with examples, and its TypeScript
 * type.
 */

/** JSON Schema, draft 2020-12. */
export interface Schema {
  readonly [keyword: string]: unknown;
}

declare const VALUE: unique symbol;
export interface Of<T> extends Schema {
  readonly [VALUE]?: T;
}

/** The type of the values that a schema describes; times are dates until they become JSON. */
export type ValueOf<S> = S extends Of<infer T> ? T : never;

/** Further keywords of a schema; a text is its description. */
type Keywords = Schema | string;
const keywords = (further: Keywords): Schema => (typeof further === "string" ? { description: further } : further);

/** The members of an object: of each its schema, or its schema and an example of its value. */
type Members = Readonly<Record<string, Schema | WithExample>>;
type WithExample = readonly [Schema, example: unknown];
const hasExample = (member: Schema | WithExample): member is WithExample => Array.isArray(member);

type Value<M> = M extends readonly [infer S, unknown] ? ValueOf<S> : ValueOf<M>;
type Values<M> = { readonly [Name in keyof M]: Value<M[Name]> };
type Some<T> = { readonly [Name in keyof T]?: T[Name] | undefined };

/** Of a schema: an example of its values. As a symbol it does not get into the document, which is JSON. */
const EXAMPLE = Symbol("example");

/** An example built from the schema's members; undefined if they have none. */
export function exampleOf(schema: Schema & { readonly [EXAMPLE]?: unknown }): unknown {
  if (EXAMPLE in schema) return schema[EXAMPLE];
  if ("const" in schema) return schema.const;
  if (schema.type === "array") return [exampleOf(schema.items as Schema)].filter((item) => item !== undefined);
  return Array.isArray(schema.type) && schema.type.includes("null") ? null : undefined;
}

const DEFINITION = Symbol("definition");
type Definition = readonly [name: string, schema: Schema];

/** A reference to a schema, which the document has once, by its name. */
export const named = (name: string, schema: Schema): Schema =>
  ({ $ref: `#/components/schemas/${name}`, [EXAMPLE]: exampleOf(schema), [DEFINITION]: [name, schema] }) as Schema;

/** The schemas that a part of the document refers to; none refers to another. */
export function definitionsIn(part: object): readonly Definition[] {
  if (DEFINITION in part) return [part[DEFINITION] as Definition];
  return Object.values(part).flatMap((each) => (typeof each === "object" && each !== null ? definitionsIn(each) : []));
}

/** An object that has these members, and may have further ones. @param required which of them it always has */
export function openObject<M extends Members, R extends keyof M & string>(
  members: M,
  required: readonly R[],
  further: Keywords = {},
): Of<Values<Pick<M, R>> & Some<Values<Omit<M, R>>>> {
  const of = <T>(each: (member: Schema | WithExample) => T): Readonly<Record<string, T>> =>
    Object.fromEntries(Object.entries(members).map(([name, member]) => [name, each(member)]));
  return {
    type: "object",
    ...(required.length === 0 ? {} : { required }),
    properties: of((member) => (hasExample(member) ? member[0] : member)),
    ...keywords(further),
    [EXAMPLE]: of((member) => (hasExample(member) ? member[1] : exampleOf(member))),
  } as Schema;
}

/** An object with exactly these members. @param optional members that may be absent; examples have none */
export function object<M extends Members, P extends Members = Readonly<Record<never, never>>>(
  members: M,
  further: Keywords = {},
  optional?: P,
): Of<Values<M> & Some<Values<P>>> {
  const absent = Object.entries(optional ?? {}).map(([name, member]) => [
    name,
    hasExample(member) ? member : [member, undefined],
  ]);
  const all = { ...members, ...(Object.fromEntries(absent) as Members) };
  return openObject(all, Object.keys(members), { additionalProperties: false, ...keywords(further) }) as Schema;
}

export const inCell = <M extends Members>(members: M) =>
  object(members, {}, { cell: text("With cells: its own one.") });

export const changeResult = (members: Members): Schema =>
  object(members, {}, { refusal: text("Why a row was not changed; absent if the database refused none.") });

/** @param further what may be absent too */
export function fromCells(members: Members, further: Members = {}): Schema {
  const missingCells = list(
    TEXT,
    "With cells: the names of the cells that did not answer. What they have is missing here.",
  );
  return object(members, {}, { ...further, missingCells });
}

/** The same answer, which also names the unknown fields of its request. */
export function withIgnored(schema: Schema & { readonly [DEFINITION]?: Definition }): Schema {
  const { [DEFINITION]: definition, oneOf, properties } = schema;
  if (definition !== undefined) return named(definition[0], withIgnored(definition[1]));
  if (Array.isArray(oneOf)) return { ...schema, oneOf: oneOf.map(withIgnored) };
  const ignored = list(TEXT, "Unknown fields of the request; absent without any.");
  return { ...schema, properties: { ...(properties as object), ignored } };
}

export function list<S extends Schema>(items: S, further: Keywords = {}): Of<readonly ValueOf<S>[]> {
  return { type: "array", items, ...keywords(further) };
}

interface Types {
  readonly string: string;
  readonly integer: number;
  readonly number: number;
  readonly boolean: boolean;
}

export function nullable<T extends string>(
  type: T,
  further: Keywords = {},
): Of<T extends keyof Types ? Types[T] | null : unknown> {
  return { type: [type, "null"], ...keywords(further) };
}

export function orNull<S extends Schema>(schema: S, further: Keywords = {}): Of<ValueOf<S> | null> {
  return { anyOf: [schema, { type: "null" }], ...keywords(further), [EXAMPLE]: exampleOf(schema) } as Schema;
}

export function maybe<S extends Schema>(schema: S, further: Keywords = {}): Of<ValueOf<S> | null> {
  return { ...schema, type: [schema.type, "null"], ...keywords(further) };
}

export function oneOf<const W extends string>(words: readonly W[], further: Keywords = {}): Of<W> {
  return { enum: words, ...keywords(further) };
}

/** The same schema, for values of a narrower type. */
export const as = <T>(schema: Schema): Of<T> => schema;

export const text = (description: string): Of<string> => ({ type: "string", description });
export const integer = (description: string): Of<number> => ({ type: "integer", description });
export const bool = (description: string): Of<boolean> => ({ type: "boolean", description });
export const count = (description: string): Of<number> => ({ type: "integer", minimum: 0, description });
export const countOrNull = (description: string) => nullable("integer", { minimum: 0, description });
export const TEXT: Of<string> = { type: "string" };
export const TEXT_OR_NULL = nullable("string");
export const TIME: Of<Date> = { type: "string", format: "date-time" };
/** An instant for examples. */
export const AT = "2025-01-31T12:00:00.000Z";
export const TIME_OR_NULL = as<Date | null>(nullable("string", { format: "date-time" }));
export const UUID: Schema = { type: "string", format: "uuid" };

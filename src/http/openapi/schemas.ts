import { ERRORS } from "../exchange.ts";
import type { Schema } from "./types.ts";

/** Further keywords of a schema; a text is its description. */
type Keywords = Schema | string;
const keywords = (further: Keywords): Schema => (typeof further === "string" ? { description: further } : further);

/** The members of an object: of each its schema, or its schema and an example of its value. */
type Members = Readonly<Record<string, Schema | WithExample>>;
type WithExample = readonly [Schema, example: unknown];
const hasExample = (member: Schema | WithExample): member is WithExample => Array.isArray(member);

/** Of a schema: an example of its values. As a symbol it does not get into the document, which is JSON. */
const EXAMPLE = Symbol("example");

/** An example of the values of a schema, put together from those of its members; undefined where they have none. */
export function exampleOf(schema: Schema & { readonly [EXAMPLE]?: unknown }): unknown {
  if (EXAMPLE in schema) return schema[EXAMPLE];
  if ("const" in schema) return schema.const;
  if (schema.type === "array") return [exampleOf(schema.items as Schema)].filter((item) => item !== undefined);
  return Array.isArray(schema.type) && schema.type.includes("null") ? null : undefined;
}

/** Of a reference: the name and the schema that it refers to. */
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

/** An object that has these members, and may have further ones. */
export function openObject(members: Members, required: readonly string[], further: Keywords = {}): Schema {
  const of = <T>(each: (member: Schema | WithExample) => T): Readonly<Record<string, T>> =>
    Object.fromEntries(Object.entries(members).map(([name, member]) => [name, each(member)]));
  return {
    type: "object",
    ...(required.length === 0 ? {} : { required }),
    properties: of((member) => (hasExample(member) ? member[0] : member)),
    ...keywords(further),
    [EXAMPLE]: of((member) => (hasExample(member) ? member[1] : exampleOf(member))),
  };
}

/** An object with exactly these members. */
export function object(members: Members, further: Keywords = {}): Schema {
  return openObject(members, Object.keys(members), { additionalProperties: false, ...keywords(further) });
}

/** A thing that is in one cell; without cells that is not said. */
export function inCell(members: Members): Schema {
  return object(
    { ...members, cell: [text("With cells: the one that has it."), undefined] },
    { required: Object.keys(members) },
  );
}

/** What a change of rows has done. */
export function changeResult(members: Members): Schema {
  const refusal = text("Why a row was not changed; absent if the database refused none.");
  return object({ ...members, refusal: [refusal, undefined] }, { required: Object.keys(members) });
}

/** An answer from all cells. @param further what may be absent too */
export function fromCells(members: Members, further: Members = {}): Schema {
  const missingCells = list(TEXT, "With cells: those that did not answer. What they have is missing here.");
  return object(
    { ...members, ...further, missingCells: [missingCells, undefined] },
    { required: Object.keys(members) },
  );
}

/** The same answer, which also names the unknown fields of its request. */
export function withIgnored(schema: Schema & { readonly [DEFINITION]?: Definition }): Schema {
  const { [DEFINITION]: definition, oneOf, properties } = schema;
  if (definition !== undefined) return named(definition[0], withIgnored(definition[1]));
  if (Array.isArray(oneOf)) return { ...schema, oneOf: oneOf.map(withIgnored) };
  const ignored = list(TEXT, "Unknown fields of the request; absent without any.");
  return { ...schema, properties: { ...(properties as object), ignored } };
}

export function list(items: Schema, further: Keywords = {}): Schema {
  return { type: "array", items, ...keywords(further) };
}

/** A value of this type, or null. */
export function nullable(type: string, further: Keywords = {}): Schema {
  return { type: [type, "null"], ...keywords(further) };
}

/** A value that this schema describes, or null. */
export function orNull(schema: Schema, further: Keywords = {}): Schema {
  return { anyOf: [schema, { type: "null" }], ...keywords(further), [EXAMPLE]: exampleOf(schema) };
}

export const text = (description: string): Schema => ({ type: "string", description });
export const integer = (description: string): Schema => ({ type: "integer", description });
export const bool = (description: string): Schema => ({ type: "boolean", description });
/** A whole number from 0. */
export const count = (description: string): Schema => ({ type: "integer", minimum: 0, description });
export const countOrNull = (description: string): Schema => nullable("integer", { minimum: 0, description });
export const TEXT: Schema = { type: "string" };
export const TEXT_OR_NULL = nullable("string");
export const TIME: Schema = { type: "string", format: "date-time" };
/** An instant for examples. */
export const AT = "2025-01-31T12:00:00.000Z";
export const TIME_OR_NULL = nullable("string", { format: "date-time" });
export const UUID: Schema = { type: "string", format: "uuid" };
/** With cells it names those that failed, and says what was done in the others. */
export const STORAGE_FAILURE: Schema = {
  anyOf: [
    { const: ERRORS.storageFailed },
    { type: "string", pattern: "^The (cells?|operation failed in the cells?) " },
  ],
};
const fixedError = (message: string): Schema => object({ error: { const: message } });

/** Of several messages in one request. */
const RECEIPTS = list(
  object({ status: { type: "integer", enum: [200, 202, 400, 422, 424, 500, 503] }, body: { type: "object" } }),
  "For each message, in order, what it would have got alone; 424: another one was refused, with `batch.atomic`.",
);

/** The schemas that several operations share; the bodies of the answers are those of the specification's tables. */
const SCHEMAS = {
  Batch: object({ items: RECEIPTS }),
  BatchRefused: object({ error: TEXT, items: RECEIPTS }),
  Error: object({ error: text("What is wrong, for the caller.") }),
  BodyTooLarge: object({ error: { type: "string", pattern: "^Request body exceeds [0-9]+ bytes$" } }),
  InternalError: fixedError(ERRORS.internal),
  InvalidRequest: object({
    error: { type: "string", pattern: "^(Invalid request: |A replay needs at least one filter|The body is not what)" },
  }),
  ShuttingDown: fixedError(ERRORS.shuttingDown),
  StorageFailed: object({ error: STORAGE_FAILURE }),
  TooManyBodies: fixedError(ERRORS.overloaded),
  TransformUnavailable: fixedError(ERRORS.transformUnavailable),
  UnsupportedEncoding: fixedError(ERRORS.unsupportedEncoding),
  Stored: object({ messageId: { ...UUID, description: "The `id` of the new inbox row." } }),
  Filtered: object({ status: { const: "filtered" } }),
  Duplicate: object({ status: { const: "duplicate" } }),
} as const satisfies Readonly<Record<string, Schema>>;

export type SchemaName = keyof typeof SCHEMAS;

/** A schema of {@link SCHEMAS} by its name. */
export const ref = (name: SchemaName): Schema => named(name, SCHEMAS[name]);

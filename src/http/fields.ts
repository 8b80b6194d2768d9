import type { ServerResponse } from "node:http";
import type { Syntax } from "../core/operations/syntax.ts";
import { jsonText } from "../core/receipt/jsonDocument.ts";
import { nullable, openObject, type Schema } from "../model/described.ts";
import { errorText } from "../model/errors.ts";
import { type AnswerError, sendError } from "./exchange.ts";
import { inPath } from "./openapi/answers.ts";
import type { Examples, Parameter } from "./openapi/types.ts";

/**
 * A value of a request: one declaration says how it is read, which type it has, and how the OpenAPI document describes
 * it. `A` is what counts when it is absent.
 */
export interface Field<T, A = undefined> {
  readonly schema: Schema;
  readonly description?: string;
  /** @throws Error that names the place, what was found and what is expected */
  readonly read: (value: unknown, place: string) => T;
  /** @throws Error when the field is required */
  readonly absent: (place: string) => A;
  readonly isRequired?: true;
  /** Its null has a meaning of its own, and is read. */
  readonly readsNull?: true;
}

export type Fields = Readonly<Record<string, Field<unknown, unknown>>>;

/** The type of what {@link readFields} returns. */
export type ValuesOf<F extends Fields> = {
  readonly [Name in keyof F]: F[Name] extends Field<infer T, infer A> ? T | A : never;
};

/** Reads the fields in the order of their declaration. @param values unknown ones are ignored; most nulls count as absent */
export function readFields<F extends Fields>(fields: F, values: Readonly<Record<string, unknown>>): ValuesOf<F> {
  const read = Object.entries(fields).map(([name, field]) => {
    const value = values[name] ?? (field.readsNull && name in values ? null : undefined);
    return [name, value === undefined ? field.absent(name) : field.read(value, name)];
  });
  return Object.fromEntries(read) as ValuesOf<F>;
}

/** Names of members that are no fields: the first ten, and of each the first 60 characters. */
export function unknownNames(fields: Fields, values: Readonly<Record<string, unknown>>): readonly string[] {
  const names = Object.keys(values).filter((name) => !Object.hasOwn(fields, name));
  return names.slice(0, 10).map((name) => name.slice(0, 60));
}

const optional = (): undefined => undefined;

export const text = <T>({ parse, schema }: Syntax<T>, description?: string): Field<T> => ({
  schema: nullable("string", {
    ...schema,
    type: ["string", "null"],
    ...(schema.enum && { enum: [...schema.enum, null] }),
    ...(description !== undefined && { description }),
  }),
  read: (value, place) => textAt(place, value, parse),
  absent: optional,
});

/** A member whose null is a value. */
export const orNull = <T>(field: Field<T>): Field<T | null> => ({
  ...field,
  readsNull: true,
  read: (value, place) => (value === null ? null : field.read(value, place)),
});

export const list = <T>({ parse, schema }: Syntax<T>, description: string): Field<readonly T[]> => ({
  schema: nullable("array", { items: schema, description }),
  read(value, place) {
    if (!Array.isArray(value)) throw new Error(`"${place}" is ${kindOf(value)}; an array of strings is expected`);
    return value.map((item: unknown, n) => textAt(`${place}[${n}]`, item, parse));
  },
  absent: optional,
});

export const flag = (description: string): Field<boolean> => ({
  schema: nullable("boolean", description),
  read(value, place) {
    if (typeof value === "boolean") return value;
    throw new Error(`"${place}" is not valid; true or false is expected`);
  },
  absent: optional,
});

export const wholeNumber = (minimum: number, maximum: number, description: string): Field<number> => ({
  schema: nullable("integer", { minimum, maximum, description }),
  read(value, place) {
    if (typeof value === "number" && Number.isInteger(value) && value >= minimum && value <= maximum) return value;
    throw new Error(`"${place}" is not valid; a whole number from ${minimum} to ${maximum} is expected`);
  },
  absent: optional,
});

/** A field that a request must have. @param expected such as `a text` */
export const required = <T>(field: Field<T>, expected: string): Field<T, never> => ({
  ...field,
  schema: { ...field.schema, type: (field.schema.type as readonly string[])[0] },
  isRequired: true,
  absent(place) {
    throw new Error(`"${place}" is missing; ${expected} is expected`);
  },
});

export const byDefault = <T>(field: Field<T>, fallback: T): Field<T, T> => ({
  ...field,
  schema: { ...field.schema, default: fallback },
  absent: () => fallback,
});

export const inQuery = <T>({ parse, schema }: Syntax<T>, description: string): Field<T> => ({
  schema,
  description,
  read(value, place) {
    try {
      return parse(String(value));
    } catch (error) {
      throw new Error(`the query parameter "${place}": ${errorText(error)}`);
    }
  },
  absent: optional,
});

/** A part of a path. @param read gives undefined for what names nothing */
export const ofPath = <T>(schema: Schema, description: string, read: (text: string) => T): Field<T> => ({
  schema,
  description,
  read: (value) => read(String(value)),
  absent: optional,
});

export function describeParameters(path: Fields, query: Fields): readonly Parameter[] {
  return [
    ...Object.entries(path).map(([name, { schema, description = "" }]) => inPath(name, description, schema)),
    ...Object.entries(query).map(
      ([name, { schema, description = "" }]): Parameter => ({
        name,
        in: "query",
        required: false,
        description,
        schema,
      }),
    ),
  ];
}

export function queryOf(url: string): Readonly<Record<string, string | null>> {
  const given = new URLSearchParams(url.split("?", 2)[1] ?? "");
  return Object.fromEntries([...given].reverse());
}

/** A JSON object in the body of a request: members that are no fields are ignored, and null counts as absent. */
export interface JsonBody<F extends Fields> {
  readonly fields: F;
  /** Further keywords of its schema. */
  readonly keywords?: Schema;
  readonly examples?: Examples;
}

export function bodySchema({ fields, keywords }: JsonBody<Fields>): Schema {
  const description = "Unknown fields are ignored; null counts as absent.";
  const properties = Object.fromEntries(Object.entries(fields).map(([name, { schema }]) => [name, schema]));
  return openObject(properties, requiredOf(fields), { description, ...keywords });
}

export const requiredOf = (fields: Fields): readonly string[] =>
  Object.entries(fields).flatMap(([name, { isRequired }]) => (isRequired ? [name] : []));

/** Reads a request body, which has no fields when it is empty. @throws Error whose message quotes nothing of the body */
export function readBody(body: Buffer, expected = "a JSON object"): Readonly<Record<string, unknown>> {
  const value = body.length === 0 ? {} : parseJsonBody(body);
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new Error(`the body is ${kindOf(value)}; ${expected} is expected`);
}

/** @throws Error whose message quotes nothing of the body */
function parseJsonBody(body: Buffer): unknown {
  try {
    const text = jsonText(body);
    if (text !== null) return JSON.parse(text);
  } catch {
    // The parser's own message would quote the payload.
  }
  throw new Error("the body is not a JSON document in UTF-8");
}

/** @returns undefined for an invalid request, which has its answer then */
export function parsed<T>(
  res: ServerResponse,
  parse: () => T,
  answerError: AnswerError = sendError,
): { readonly value: T } | undefined {
  try {
    return { value: parse() };
  } catch (error) {
    answerError(res, 400, `Invalid request: ${errorText(error)}`);
    return undefined;
  }
}

function textAt<T>(place: string, value: unknown, parse: (text: string) => T): T {
  if (typeof value !== "string") throw new Error(`"${place}" is ${kindOf(value)}; a string is expected`);
  try {
    return parse(value);
  } catch (error) {
    throw new Error(`"${place}" is ${shown(value)}; ${errorText(error)}`);
  }
}

/** What a value is, without quoting it. */
export function kindOf(value: unknown): string {
  if (value === undefined) return "missing";
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

const SHOWN_CHARACTERS = 60;

function shown(text: string): string {
  return JSON.stringify(text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text);
}

import { parseText } from "../../core/finished/requests.ts";
import { errorText } from "../../model/errors.ts";
import { STORABLE, upTo } from "../openapi/schemas.ts";
import type { Parameter, Schema } from "../openapi/types.ts";

/** A parameter of a query: how it is read, and how the OpenAPI document describes it. */
interface QueryParameter<T> {
  /** @throws Error with what is expected */
  readonly parse: (text: string) => T;
  readonly schema: Schema;
  readonly description: string;
}

/** By name. */
type Query = Readonly<Record<string, QueryParameter<unknown>>>;

/** Undefined for a parameter that is absent. */
export type ValuesOf<Q extends Query> = { readonly [Name in keyof Q]: ReturnType<Q[Name]["parse"]> | undefined };

/** Makes what reads the query of a request. @returns it throws an Error that names the parameter */
export function readQuery<Q extends Query>(query: Q): (request: { readonly url: string }) => ValuesOf<Q> {
  return ({ url }) => {
    const given = new URLSearchParams(url.split("?", 2)[1] ?? "");
    const values = Object.entries(query).map(([name, { parse }]) => {
      const text = given.get(name);
      try {
        return [name, text === null ? undefined : parse(text)];
      } catch (error) {
        throw new Error(`the query parameter "${name}": ${errorText(error)}`);
      }
    });
    return Object.fromEntries(values) as ValuesOf<Q>;
  };
}

/** The parameters as the OpenAPI document has them. */
export function describeQuery(query: Query): readonly Parameter[] {
  return Object.entries(query).map(([name, { schema, description }]) => ({
    name,
    in: "query",
    required: false,
    description,
    schema,
  }));
}

export const textParameter = (description: string): QueryParameter<string> => ({
  parse: parseText,
  schema: STORABLE,
  description,
});

/** One of some words. */
export const choice = <T extends string>(words: readonly T[], description: string): QueryParameter<T> => ({
  parse(text) {
    const word = words.find((each) => each === text);
    if (word !== undefined) return word;
    throw new Error(`${words.length > 2 ? `one of ${words.join(", ")}` : words.join(" or ")} is expected`);
  },
  schema: { enum: words },
  description,
});

/** A whole number from 1. */
export const numberParameter = (most: number, description: string): QueryParameter<number> => ({
  parse(text) {
    const value = /^\d{1,5}$/.test(text) ? Number(text) : 0;
    if (value >= 1 && value <= most) return value;
    throw new Error(`a whole number from 1 to ${most} is expected`);
  },
  schema: upTo(most),
  description,
});

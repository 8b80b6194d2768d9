import type { Secret } from "./secret.ts";

/** The vocabulary of the configuration schema: a part of JSON Schema, plus markers of our own. */

/** How the text of a value is checked; each has a function in `config/validate.ts`. */
const SYNTAXES = [
  "notBlank",
  "identifier",
  "bindAddress",
  "captureName",
  "headerName",
  "httpUrl",
  "traceUrl",
  "proxy",
  "urlPath",
  "pathTemplate",
  "jsonPath",
  "listPath",
  "topicPattern",
  "topicTemplate",
  "address",
  "routingKey",
  "expression",
] as const;
export type Syntax = (typeof SYNTAXES)[number];

/** One node of the schema, loosely typed. The literal types behind it give `Infer` the exact ones. */
export interface SchemaNode {
  readonly type?: "object" | "array" | "string" | "integer" | "number" | "boolean";
  readonly description?: string;
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly required?: readonly string[];
  /** One of these keys is required too, such as `token` or `tokens`; a dot leads into a block. */
  readonly requiredAny?: readonly string[];
  /** A map: any name, and this for each value. */
  readonly additionalProperties?: SchemaNode;
  readonly items?: SchemaNode;
  /** Alternatives by name, chosen by the `required` keys that are present; the value gets a `kind`. */
  readonly kinds?: Readonly<Record<string, SchemaNode>>;
  readonly default?: unknown;
  /** The default in words, if it depends on other keys. */
  readonly defaultText?: string;
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly exclusiveMinimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  /** Of the items of a list: a text in the place of the list is one item; without it, items separated by commas. */
  readonly whole?: true;
  /** Of a list: a number of items, up to this, may stand in its place. */
  readonly orCount?: number;
  /** Of a block: a text in its place is the value of this key. */
  readonly orKey?: string;
  /** A credential: loaded as `Secret`, may be `file:<path>`. */
  readonly secret?: true;
  /** A URL that may hold a password, which is masked wherever the value is shown. */
  readonly url?: true;
  /** A duration such as `30d`, loaded as ms. */
  readonly duration?: true;
  readonly unit?: "ms";
  readonly syntax?: Syntax;
}

/** Makes a node of a type from its description and further keywords: `integer("Most rows.", { default: 100 })`. */
function nodeOf<const T extends SchemaNode>(type: T) {
  return <const K extends Omit<SchemaNode, "type" | "description"> = Record<never, never>>(
    description: string,
    keywords?: K,
  ) => ({ ...type, description, ...keywords }) as T & K & { readonly description: string };
}

export const text = nodeOf({ type: "string" });
/** A text or a list of texts, of one syntax; loaded as a list. */
export const textOrList = <const S extends Syntax>(description: string, syntax: S) =>
  ({ type: "array", description, items: { type: "string", syntax, whole: true }, minItems: 1 }) as const;
export const integer = nodeOf({ type: "integer" });
export const number = nodeOf({ type: "number" });
export const boolean = nodeOf({ type: "boolean" });
export const ms = nodeOf({ type: "integer", unit: "ms" });
export const duration = nodeOf({ type: "string", duration: true });

interface Block<R, P> {
  readonly type: "object";
  readonly description: string;
  readonly required: R;
  readonly properties: P;
}

/** A block of keys that may be left out. @param required those of its keys that it must have */
export const block = <const R extends readonly string[], const P extends object>(
  description: string,
  required: R,
  properties: P,
) => ({ type: "object", description, ...(required.length > 0 && { required }), properties }) as Block<R, P>;

/** A block that is always there, as far as its keys have defaults. */
export const section = <const P extends object, const R extends readonly string[] = []>(
  description: string,
  properties: P,
  required?: R,
) => ({ ...block(description, required ?? [], properties), default: {} }) as Block<R, P> & { readonly default: object };

export const list = <const I extends object, const K extends Omit<SchemaNode, "type" | "items"> = object>(
  description: string,
  items: I,
  keywords?: K,
) => ({ type: "array", description, items, ...keywords }) as { readonly type: "array"; readonly items: I } & K;

/**
 * The TypeScript type of a value that a configuration schema (written `as const`) describes: one declaration gives
 * type, validation, JSON Schema and reference page. A property with a `default` or listed in `required` is always
 * present. `secret: true` gives a {@link Secret}; `ms` and `duration` are numbers of ms. `kinds` gives a union,
 * discriminated by `kind`.
 */
export type Infer<S> = S extends { readonly kinds: infer K }
  ? { [N in keyof K & string]: { readonly kind: N } & Infer<K[N]> }[keyof K & string]
  : S extends { readonly secret: true }
    ? Secret
    : S extends { readonly duration: true }
      ? number
      : S extends { readonly enum: readonly (infer E)[] }
        ? E
        : S extends { readonly type: "string" }
          ? string
          : S extends { readonly type: "integer" | "number" }
            ? number
            : S extends { readonly type: "boolean" }
              ? boolean
              : S extends { readonly type: "array"; readonly items: infer I }
                ? readonly Infer<I>[]
                : S extends { readonly type: "object"; readonly properties: infer P }
                  ? InferObject<P, RequiredOf<S>>
                  : S extends { readonly type: "object"; readonly additionalProperties: infer V }
                    ? Readonly<Record<string, Infer<V>>>
                    : unknown;

type RequiredOf<S> = S extends { readonly required: readonly (infer R extends string)[] } ? R : never;

type PresentKeys<P, R> = {
  [K in keyof P]: K extends R ? K : P[K] extends { readonly default: unknown } ? K : never;
}[keyof P];

type InferObject<P, R> = { readonly [K in PresentKeys<P, R>]: Infer<P[K]> } & {
  readonly [K in Exclude<keyof P, PresentKeys<P, R>>]?: Infer<P[K]>;
};

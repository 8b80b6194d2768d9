import type { Secret } from "./secret.ts";

/**
 * The TypeScript type of a value that a configuration schema (written `as const`) describes: one declaration gives the
 * type, the validation, the JSON Schema and the reference page. A property with a `default` or listed in `required` is
 * always there; any other is optional. `secret: true` gives a {@link Secret}; `ms` and `duration` values are numbers of ms.
 * `kinds` gives a union of its members, told apart by `kind`.
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

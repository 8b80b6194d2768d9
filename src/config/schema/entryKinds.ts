import type { SchemaNode } from "../../model/schema.ts";

type Keys = Readonly<Record<string, SchemaNode>>;

/**
 * The schemas of a section's kinds.
 *
 * @param common the keys that every entry has besides those of its kind
 */
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

/** The words in which the configuration schema is written: a part of JSON Schema, plus markers of our own. */

/** How the text of a value is checked; each has a function in `../syntax.ts`. */
export const SYNTAXES = [
  "notBlank",
  "identifier",
  "bindAddress",
  "captureName",
  "headerName",
  "httpUrl",
  "urlPath",
  "jsonPath",
  "topicPattern",
  "topicTemplate",
  "address",
  "routingKey",
  "expression",
] as const;
export type Syntax = (typeof SYNTAXES)[number];

/** One node of the schema, as loosely as a walker needs it. The literal types behind it give `Infer` the exact ones. */
export interface SchemaNode {
  readonly type?: "object" | "array" | "string" | "integer" | "number" | "boolean";
  readonly description?: string;
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly required?: readonly string[];
  /** A map: any name, and this for each value. */
  readonly additionalProperties?: SchemaNode;
  readonly items?: SchemaNode;
  /** Alternatives by name, chosen by the `required` keys that are present; the value gets a `kind`. */
  readonly kinds?: Readonly<Record<string, SchemaNode>>;
  readonly default?: unknown;
  /** Says in words what holds when the key is absent, where that depends on other keys. */
  readonly defaultText?: string;
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly exclusiveMinimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly minItems?: number;
  /** A credential: loaded as `Secret`, may be `file:<path>`. */
  readonly secret?: true;
  /** A URL that may hold a password, which is masked wherever the value is shown. */
  readonly url?: true;
  /** A duration such as `30d`, loaded as ms. */
  readonly duration?: true;
  readonly unit?: "ms";
  readonly syntax?: Syntax;
}

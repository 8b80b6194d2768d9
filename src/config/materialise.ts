import { parseDuration } from "../model/duration.ts";
import type { SchemaNode } from "../model/schema.ts";
import { Secret } from "../model/secret.ts";

/**
 * Turns validated JSON into the values that the types promise: secrets become `Secret`, durations ms. A value that the validation
 * refused stays what it is.
 */
export function materialise(node: SchemaNode, value: unknown): unknown {
  if (node.secret === true) return typeof value === "string" ? new Secret(value) : value;
  if (node.duration === true) return typeof value === "string" ? (parseDuration(value) ?? value) : value;
  if (Array.isArray(value)) return value.map((item) => materialise(node.items ?? {}, item));
  if (typeof value !== "object" || value === null) return value;
  const schema = node.kinds === undefined ? node : (node.kinds[(value as { kind: string }).kind] ?? {});
  const entries = Object.entries(value).map(([key, item]): [string, unknown] => [
    key,
    materialise(schema.properties?.[key] ?? schema.additionalProperties ?? {}, item),
  ]);
  return Object.fromEntries(entries);
}

/** Freezes a tree of plain objects, arrays and secrets, and gives it back. */
export function deepFreeze<T>(value: T): T {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const item of Object.values(value)) deepFreeze(item);
  }
  return value;
}

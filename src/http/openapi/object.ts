import type { Schema } from "./types.ts";

/** An object with exactly these members. */
export function object(properties: Readonly<Record<string, Schema>>): Schema {
  return { type: "object", required: Object.keys(properties), additionalProperties: false, properties };
}

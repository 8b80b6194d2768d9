import type { SchemaNode } from "../model/schema.ts";
import { rootSchema } from "./schema/index.ts";
import { MAX_MS } from "./validate.ts";

type Json = Readonly<Record<string, unknown>>;

/** A placeholder can have a value of any type. */
const PLACEHOLDER: Json = { type: "string", pattern: "\\$\\{" };

/**
 * The JSON Schema (draft-07) of the configuration file, for completion, hover texts and errors in editors. It is a
 * little stricter than the loader, which only warns of unknown keys.
 */
export function jsonSchema(): Json {
  return {
    $schema: "http://json-schema.org/draft-07/schema#",
    title: "svc configuration",
    ...convert(rootSchema),
  };
}

function convert(node: SchemaNode): Json {
  const text = node.description === undefined ? {} : { description: node.description };
  const preset = node.default === undefined || node.type === "object" ? {} : { default: presetOf(node) };
  return { ...text, ...preset, ...constraints(node) };
}

/** A default as one writes it: a list of one text that may be written as that text is. */
function presetOf(node: SchemaNode): unknown {
  const list = node.items?.whole === true ? (node.default as readonly string[]) : [];
  return list.length === 1 ? list[0] : node.default;
}

function constraints(node: SchemaNode): Json {
  if (node.kinds !== undefined) {
    return { anyOf: Object.entries(node.kinds).map(([kind, schema]) => kindSchema(kind, schema)) };
  }
  if (node.enum !== undefined) return orPlaceholder({ enum: node.enum });
  if (node.duration === true) return orPlaceholder({ type: "string", pattern: "^[0-9]+[smhd]$" });
  switch (node.type) {
    case "object":
      return node.orKey === undefined ? objectSchema(node) : { anyOf: [{ type: "string" }, objectSchema(node)] };
    case "array": {
      const { items = {}, orCount: maximum, minItems, maxItems } = node;
      const list = { type: "array", items: convert(items), ...defined({ minItems, maxItems }) };
      if (maximum !== undefined) return { anyOf: [list, { type: "integer", minimum: 1, maximum }, PLACEHOLDER] };
      return items.type === "string" || items.orKey !== undefined ? { anyOf: [list, { type: "string" }] } : list;
    }
    case "integer":
    case "number":
    case "boolean":
      return orPlaceholder({ type: node.type, ...limits(node) });
    default:
      return { type: "string", ...defined({ minLength: node.minLength }) };
  }
}

function objectSchema(node: SchemaNode): Json {
  if (node.additionalProperties !== undefined) {
    return { type: "object", additionalProperties: convert(node.additionalProperties) };
  }
  const properties = Object.entries(node.properties ?? {}).map(([key, property]) => [key, convert(property)]);
  // A block that is always there may get its required keys from the environment.
  const required = node.default === undefined ? node.required : undefined;
  return {
    type: "object",
    properties: Object.fromEntries(properties),
    ...defined({ required, anyOf: node.requiredAny?.map((key) => having(key.split("."))) }),
    additionalProperties: false,
  };
}

/** An object that has a key, or a block with the key. */
function having([key = "", ...inner]: readonly string[]): Json {
  const properties = inner.length === 0 ? {} : { properties: { [key]: having(inner) } };
  return { type: "object", required: [key], ...properties };
}

function kindSchema(kind: string, node: SchemaNode): Json {
  const type: SchemaNode = { type: "string", enum: [kind], description: "Kind, for the reader; the keys decide." };
  return { title: kind, ...convert({ ...node, properties: { type, ...node.properties } }) };
}

function orPlaceholder(schema: Json): Json {
  return { anyOf: [schema, PLACEHOLDER] };
}

function limits(node: SchemaNode): Json {
  const { minimum, exclusiveMinimum } = node;
  return defined({ minimum, exclusiveMinimum, maximum: node.maximum ?? (node.unit === "ms" ? MAX_MS : undefined) });
}

function defined(values: Json): Json {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}

/**
 * The form of an OpenAPI 3.1 document, as far as the service's document uses it: every object lists the fields that may stand in it, so that
 * a misspelt or misplaced one does not pass. Schema objects are held against the JSON Schema dialect itself.
 */
const text = { type: "string", minLength: 1 };
const mapOf = (schema: object) => ({ type: "object", additionalProperties: schema });
const exactly = (properties: Record<string, object>, required: readonly string[]) => ({
  type: "object",
  additionalProperties: false,
  required,
  properties,
});
const use = (name: string) => ({ $ref: `#/$defs/${name}` });
/** Names under `components`. */
const componentsOf = (schema: object) => ({
  type: "object",
  propertyNames: { pattern: "^[a-zA-Z0-9._-]+$" },
  additionalProperties: schema,
});
const JSON_SCHEMA = { $ref: "https://json-schema.org/draft/2020-12/schema" };

export const OPEN_API_SCHEMA = {
  ...exactly(
    {
      openapi: { const: "3.1.0" },
      info: exactly(
        {
          title: text,
          version: text,
          license: exactly({ name: text, identifier: text }, ["name"]),
          description: text,
        },
        ["title", "version"],
      ),
      servers: { type: "array", items: use("server") },
      tags: { type: "array", items: exactly({ name: text, description: text }, ["name"]) },
      paths: {
        type: "object",
        propertyNames: { pattern: "^/" },
        additionalProperties: exactly({ get: use("operation"), post: use("operation") }, []),
      },
      components: exactly(
        { schemas: componentsOf(JSON_SCHEMA), securitySchemes: componentsOf(use("securityScheme")) },
        [],
      ),
    },
    ["openapi", "info", "paths"],
  ),
  $defs: {
    server: exactly(
      {
        url: text,
        description: text,
        variables: mapOf(exactly({ default: text, description: text }, ["default"])),
      },
      ["url"],
    ),
    operation: exactly(
      {
        operationId: { type: "string", pattern: "^[A-Za-z][A-Za-z0-9_]*$" },
        tags: { type: "array", items: text },
        summary: text,
        description: text,
        parameters: { type: "array", items: use("parameter") },
        requestBody: exactly({ required: { type: "boolean" }, description: text, content: use("content") }, [
          "content",
        ]),
        responses: {
          type: "object",
          minProperties: 1,
          propertyNames: { pattern: "^[1-5][0-9][0-9]$" },
          additionalProperties: use("response"),
        },
        security: { type: "array", items: mapOf({ type: "array", items: text }) },
        servers: { type: "array", items: use("server") },
      },
      ["responses"],
    ),
    parameter: {
      ...exactly(
        {
          name: text,
          in: { enum: ["header", "path", "query"] },
          required: { type: "boolean" },
          description: text,
          schema: JSON_SCHEMA,
        },
        ["name", "in", "schema"],
      ),
      if: { properties: { in: { const: "path" } } },
      // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
      then: { properties: { required: { const: true } }, required: ["required"] },
    },
    response: exactly(
      {
        description: text,
        headers: mapOf(exactly({ description: text, required: { type: "boolean" }, schema: JSON_SCHEMA }, ["schema"])),
        content: use("content"),
      },
      ["description"],
    ),
    content: {
      type: "object",
      propertyNames: { pattern: "^[a-z]+/[a-z0-9.+-]+(; [a-z]+=[a-z0-9.-]+)*$" },
      additionalProperties: exactly(
        {
          schema: JSON_SCHEMA,
          examples: mapOf(exactly({ summary: text, value: true as unknown as object }, ["value"])),
        },
        [],
      ),
    },
    securityScheme: {
      oneOf: [
        exactly({ type: { const: "http" }, scheme: { const: "bearer" }, description: text }, ["type", "scheme"]),
        exactly({ type: { const: "apiKey" }, in: { const: "header" }, name: text, description: text }, [
          "type",
          "in",
          "name",
        ]),
      ],
    },
  },
};

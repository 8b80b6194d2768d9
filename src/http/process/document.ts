import { JSON_TYPE, send } from "../exchange.ts";
import { plain } from "../openapi/answers.ts";
import { type DocumentOptions, openApiDocument } from "../openapi/document.ts";
import { type Route, route } from "../routes.ts";

/** `GET /openapi.json`, which describes itself too. @param others all other routes of the process */
export function document(others: readonly Route[], options: DocumentOptions): Route {
  const own: Route = route(
    "openapi",
    {
      summary: "This document",
      description: "OpenAPI 3.1, generated from the configuration and the roles of this process.",
      answers: [
        plain("The document.", "application/json", {
          type: "object",
          required: ["openapi", "info", "paths"],
          properties: { openapi: { const: "3.1.0" }, info: { type: "object" }, paths: { type: "object" } },
        }),
      ],
    },
    async (_req, res) => send(res, 200, JSON_TYPE, text),
  );
  const text = JSON.stringify(openApiDocument([...others, own], options));
  return own;
}

import { block, type SchemaNode } from "../../model/schema.ts";
import { databaseSchema } from "./database.ts";
import { destinationsSchema } from "./destinations.ts";
import { inboxSchema } from "./inbox.ts";
import { outboxSchema } from "./outbox.ts";
import { adminSchema, httpSchema, retentionSchema, routesSchema, serverSchema } from "./sections.ts";
import { sourcesSchema } from "./sources.ts";

/**
 * The whole configuration, declared once: its types (`Infer`), validation, environment names, JSON Schema and reference
 * page derive from it.
 */
export const configSchema = block("Configuration of svc.", [], {
  server: serverSchema,
  database: databaseSchema,
  outbox: outboxSchema,
  inbox: inboxSchema,
  http: httpSchema,
  admin: adminSchema,
  destinations: destinationsSchema,
  routes: routesSchema,
  sources: sourcesSchema,
  retention: retentionSchema,
}) satisfies SchemaNode;

/** The same schema without its literal types. */
export const rootSchema: SchemaNode = configSchema;

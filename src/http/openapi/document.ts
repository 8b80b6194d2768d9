import { definitionsIn } from "../../model/described.ts";
import type { HttpRoute } from "../routes.ts";
import { type Answer, bodyAnswers, jsonContent, portAnswers, responses, unauthorized } from "./answers.ts";
import type { OpenApiDocument, Operation, SecurityScheme, ServerEntry } from "./types.ts";

export interface DocumentOptions {
  /** Version of the service. */
  readonly version: string;
  readonly server: { readonly httpPort: number; readonly managementPort?: number | undefined };
  /** `inbox.maxBodyBytes` */
  readonly maxBodyBytes: number;
}

/** The OpenAPI 3.1 document of the routes that a process serves, as plain data without secrets. */
export function openApiDocument(routes: readonly HttpRoute[], options: DocumentOptions): OpenApiDocument {
  const { version, server, maxBodyBytes } = options;
  const hasManagementPort = server.managementPort !== undefined;
  const data = portAnswers(maxBodyBytes);
  const answers = { data, operator: hasManagementPort ? portAnswers(null) : data };
  // The document itself is on the management port too.
  const servers = hasManagementPort ? { data: [dataServer(server.httpPort)], operator: undefined } : undefined;

  const paths: Record<string, Record<string, Operation>> = {};
  const securitySchemes: Record<string, SecurityScheme> = {};
  for (const route of routes) {
    const { access, isAlias } = route.description;
    if (isAlias) continue;
    if (access !== undefined) securitySchemes[access.name] = access.scheme;
    const operation = operationOf(route, answers[route.port], servers?.[route.port]);
    paths[route.path] = { ...paths[route.path], [route.method]: operation };
  }
  const groups = new Set(routes.map(({ group }) => group));
  return {
    openapi: "3.1.0",
    info: {
      title: "svc",
      version,
      license: { name: "MIT", identifier: "MIT" },
      description: "A durable inbox and outbox relay. These are the routes of the process that served this document.",
    },
    servers: [{ url: "/", description: "The port that served this document." }],
    tags: TAGS.filter(({ name }) => groups.has(name)),
    paths,
    components: { schemas: Object.fromEntries(definitionsIn(paths)), securitySchemes },
  };
}

const TAGS = [
  { name: "inbox", description: "Messages come in here, a path for each HTTP source." },
  { name: "pull", description: "Clients fetch messages here. An HMAC must cover the whole request." },
  { name: "admin", description: "For operators. HMACs of bodies open `admin_transform_test` and `admin_replay` only." },
  { name: "console", description: "The page for operators, and its sessions." },
  { name: "operation", description: "Health, metrics and this document." },
] as const;

function operationOf(
  { operationId, group, description: route }: HttpRoute,
  ofPort: readonly Answer[],
  servers: readonly ServerEntry[] | undefined,
): Operation {
  const { summary, description, access, parameters = [], body, answers, error } = route;
  const refusals = [...unauthorized(access, error), ...(body ? bodyAnswers(body.maxBytes, error) : [])];
  return {
    operationId,
    tags: [group],
    summary,
    description,
    parameters: [...(access?.parameters ?? []), ...parameters],
    ...(body && {
      requestBody: {
        required: body.isOptional !== true,
        description: body.description ?? `At most ${body.maxBytes} bytes.`,
        content: jsonContent(body.schema, body.examples),
      },
    }),
    responses: responses([...answers, ...refusals, ...ofPort]),
    security: access === undefined ? [] : [{ [access.name]: [] }],
    ...(servers && { servers }),
  };
}

/** The data port as seen from the management port; only the operator knows its public address. */
function dataServer(httpPort: number): ServerEntry {
  return {
    url: "http://{host}:{port}",
    description: "The data port.",
    variables: {
      host: { default: "localhost", description: "Host of the service." },
      port: { default: String(httpPort), description: "`server.httpPort`, or the port of the proxy in front of it." },
    },
  };
}

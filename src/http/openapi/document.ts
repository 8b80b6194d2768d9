import { replayOperation, transformTestOperation } from "./adminPaths.ts";
import {
  listDestinationsOperation,
  pauseDestinationOperation,
  resumeDestinationOperation,
} from "./destinationPaths.ts";
import {
  livenessOperation,
  metricsOperation,
  openApiOperation,
  readinessOperation,
  rootOperation,
} from "./operatorPaths.ts";
import { parkedChangeOperation, parkedListOperation } from "./parkedPaths.ts";
import { pullOperations } from "./pullPaths.ts";
import { type Answer, portAnswers } from "./responses.ts";
import { SCHEMAS } from "./schemas.ts";
import { type Security, securityOf } from "./security.ts";
import type { ServedApi } from "./served.ts";
import { receiveOperation } from "./sourcePaths.ts";
import type { OpenApiDocument, Operation, PathItem, SecurityScheme, ServerEntry } from "./types.ts";

/**
 * Describes what a process serves: each of its routes with every answer it can give, and no other route.
 *
 * @returns an OpenAPI 3.1 document, as plain data; it holds no secret
 */
export function openApiDocument(api: ServedApi): OpenApiDocument {
  const routes = [...dataRoutes(api), ...operatorRoutes(api)];
  const paths = new Map<string, PathItem>();
  for (const { path, method, operation } of routes) paths.set(path, { ...paths.get(path), [method]: operation });
  const allPaths = Object.fromEntries(paths);
  return {
    openapi: "3.1.0",
    info: {
      title: "svc",
      version: api.version,
      license: { name: "MIT", identifier: "MIT" },
      description:
        "A durable inbox and outbox relay. Here are the routes of the process that gave this document, by its roles and its configuration.",
    },
    servers: [{ url: "/", description: "The port that gave this document." }],
    tags: TAGS.filter(({ name }) => routes.some(({ operation }) => operation.tags.includes(name))),
    paths: allPaths,
    components: {
      schemas: usedSchemas(allPaths),
      securitySchemes: Object.assign({}, ...routes.map(({ schemes }) => schemes)),
    },
  };
}

/** The shared schemas that the routes of this process speak of; none of them speaks of another. */
function usedSchemas(paths: OpenApiDocument["paths"]): OpenApiDocument["components"]["schemas"] {
  const text = JSON.stringify(paths);
  const names = new Set(Array.from(text.matchAll(/"#\/components\/schemas\/(\w+)"/g), ([, name]) => name));
  return Object.fromEntries(Object.entries(SCHEMAS).filter(([name]) => names.has(name)));
}

const TAGS = [
  { name: "inbox", description: "Messages come in here, a path for each HTTP source." },
  { name: "pull", description: "Messages go out here to clients that fetch them." },
  { name: "admin", description: "For operators: try transforms, deliver again, pause destinations." },
  { name: "operation", description: "Health, metrics and this document." },
] as const;

interface ServedRoute {
  readonly path: string;
  readonly method: "get" | "post";
  readonly operation: Operation;
  readonly schemes?: Readonly<Record<string, SecurityScheme>>;
}

/** What is always on the data port. */
function dataRoutes(api: ServedApi): readonly ServedRoute[] {
  const { maxBodyBytes } = api;
  const common = portAnswers(maxBodyBytes);
  const ids = new Identifiers();
  const sources = api.sources.map((source): ServedRoute => {
    const id = ids.of(source.name);
    const access = securityOf(source.auth, `source.${id}`, `the source ${source.name}`);
    const operation = receiveOperation(source, id, access, maxBodyBytes, common);
    return { path: source.path, method: "post", operation, schemes: access.schemes };
  });
  const root: ServedRoute = { path: "/", method: "get", operation: rootOperation(common) };
  const routes = [...sources, ...pullRoutes(api, common), root];
  if (api.managementPort === undefined) return routes;
  return routes.map((route) => ({ ...route, operation: { ...route.operation, servers: [dataServer(api)] } }));
}

function pullRoutes({ pull }: ServedApi, common: readonly Answer[]): readonly ServedRoute[] {
  if (pull === undefined) return [];
  const access = securityOf(pull.auth, "pull", "the pull routes");
  const ids = new Identifiers();
  return pull.sources.flatMap((source) =>
    Object.entries(pullOperations({ name: source, id: ids.of(source) }, pull, access, common)).map(
      ([name, operation]): ServedRoute => {
        const path = `${pull.basePath}/${encodeURIComponent(source)}/${name}`;
        return { path, method: "post", operation, schemes: access.schemes };
      },
    ),
  );
}

/** What moves to the management port when there is one; the document itself is there too. */
function operatorRoutes(api: ServedApi): readonly ServedRoute[] {
  const common = portAnswers(api.managementPort === undefined ? api.maxBodyBytes : null);
  const get = (path: string, operation: Operation): ServedRoute => ({ path, method: "get", operation });
  return [
    ...adminRoutes(api, common),
    get("/health/live", livenessOperation(common)),
    get("/health/ready", readinessOperation("health_ready", common)),
    get("/health", readinessOperation("health", common)),
    get("/metrics", metricsOperation(common)),
    get("/openapi.json", openApiOperation(common)),
  ];
}

function adminRoutes({ admin }: ServedApi, common: readonly Answer[]): readonly ServedRoute[] {
  if (admin === undefined) return [];
  const access: Security = securityOf(admin.auth, "admin", "the admin routes");
  const post = (path: string, operation: Operation): ServedRoute => ({
    path,
    method: "post",
    operation,
    schemes: access.schemes,
  });
  return [
    post("/admin/transform/test", transformTestOperation(admin, access, common)),
    post("/admin/replay", replayOperation(admin, access, common)),
    {
      path: "/admin/destinations",
      method: "get",
      operation: listDestinationsOperation(admin, access, common),
      schemes: access.schemes,
    },
    post("/admin/destinations/{name}/pause", pauseDestinationOperation(admin, access, common)),
    post("/admin/destinations/{name}/resume", resumeDestinationOperation(admin, access, common)),
    { ...post("/admin/parked", parkedListOperation(admin, access, common)), method: "get" },
    post("/admin/parked/retry", parkedChangeOperation("retry", admin, access, common)),
    post("/admin/parked/discard", parkedChangeOperation("discard", admin, access, common)),
  ];
}

/** The data port as seen from another one: where it is reached from outside, only the operator knows. */
function dataServer({ httpPort }: ServedApi): ServerEntry {
  return {
    url: "http://{host}:{port}",
    description: "The data port.",
    variables: {
      host: { default: "localhost", description: "Where the service is reached." },
      port: { default: String(httpPort), description: "`server.httpPort`, or what stands before it." },
    },
  };
}

/** Names of sources as parts of identifiers, each its own: generators of clients permit few characters, a source's name may have any. */
class Identifiers {
  readonly #taken = new Set<string>();

  of(source: string): string {
    let name = source.replace(/[^A-Za-z0-9]/g, "_");
    while (this.#taken.has(name)) name += "_";
    this.#taken.add(name);
    return name;
  }
}

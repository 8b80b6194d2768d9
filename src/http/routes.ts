import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import express, { type ErrorRequestHandler, type Express, type RequestHandler } from "express";
import { errorText } from "../model/errors.ts";
import { OPERATIONS, type OperationId, type OperationPath, pathPattern } from "../model/routes.ts";
import type { Log } from "../ports/runtime.ts";
import { ANSWERED, announcesTooMuch, ERRORS, sendError, tooLargeMessage } from "./exchange.ts";
import type { RouteDescription } from "./openapi/answers.ts";

/** @param parameters the decoded values of `{name}` in the path */
export type RouteHandler = (
  req: IncomingMessage,
  res: ServerResponse,
  parameters: Readonly<Record<string, string>>,
) => Promise<void>;

/** One operation as this process serves it: it is registered and described from this. */
export interface Route extends OperationPath {
  readonly operationId: string;
  readonly description: RouteDescription;
  readonly handle: RouteHandler;
  /** Of a source: what its sender's handshake uses besides POST. */
  readonly handshakeMethods?: readonly string[];
  /** Of a source: takes status and body of every answer, also without `handle`. */
  readonly onAnswer?: OnAnswer | undefined;
}

type OnAnswer = (status: number, body: string) => void;

/**
 * The entry of {@link OPERATIONS} with what serves and describes it.
 *
 * @param of for an operation that each source has: the whole path, and the source's name as a part of operation ids
 */
export function route(
  id: OperationId,
  description: RouteDescription,
  handle: RouteHandler,
  of?: Pick<Route, "path" | "handshakeMethods" | "onAnswer"> & { readonly sourceId: string },
): Route {
  const entry = OPERATIONS[id];
  if (of === undefined) return { ...entry, operationId: id, description, handle };
  const { sourceId, ...own } = of;
  return { ...entry, ...own, operationId: `${id}_${sourceId}`, description, handle };
}

/**
 * Names of sources as parts of identifiers: generators of clients allow few characters, a source's name may have any.
 *
 * @returns each name with its identifier, which is unique
 */
export function sourceIds(names: readonly string[]): ReadonlyMap<string, string> {
  const taken = new Set<string>();
  return new Map(
    names.map((name) => {
      let id = name.replace(/[^A-Za-z0-9]/g, "_");
      while (taken.has(id)) id += "_";
      taken.add(id);
      return [name, id];
    }),
  );
}

interface AppOptions {
  /** All routes of the process. */
  readonly routes: readonly Route[];
  /** With one, the operator's routes are on it and nowhere else. */
  readonly hasManagementPort: boolean;
  /** `inbox.maxBodyBytes`: the cap of every data-port route. */
  readonly maxBodyBytes: number;
  readonly log: Log;
}

interface Apps {
  readonly data: RequestListener;
  /** Null without a management port. */
  readonly management: RequestListener | null;
}

/**
 * Puts the routes on their ports (spec, "Endpoints"). A path that its port does not serve answers 404, a method that
 * the path does not have 405.
 */
export function createApps({ routes, hasManagementPort, maxBodyBytes, log }: AppOptions): Apps {
  const operator = routes.filter(({ port }) => port === "operator");
  const data = hasManagementPort ? routes.filter(({ port }) => port === "data") : routes;
  return {
    data: listener(data, maxBodyBytes, log),
    management: hasManagementPort ? listener(operator, Number.POSITIVE_INFINITY, log) : null,
  };
}

function listener(routes: readonly Route[], maxBodyBytes: number, log: Log): RequestListener {
  // The routes of sources bypass express, which tries every route in turn and swaps prototypes.
  const ofSources = new Map(routes.filter(isOfSource).map((route) => [route.path, route]));
  const app = expressApp(
    routes.filter((route) => !isOfSource(route)),
    log,
  );
  return function onRequest(req, res) {
    const route = ofSources.get(pathOf(req));
    if (route?.onAnswer !== undefined) res.on(ANSWERED, route.onAnswer);
    if (route?.group !== "inbox") {
      // Answers to operators and pull clients are for them alone, and never a page.
      res.setHeader("Cache-Control", "no-store");
      res.setHeader("X-Content-Type-Options", "nosniff");
    }
    if (announcesTooMuch(req, maxBodyBytes)) return sendError(res, 413, tooLargeMessage(maxBodyBytes));
    if (route === undefined) return app(req, res);
    const methods = ["POST", ...(route.handshakeMethods ?? [])];
    if (!methods.includes(req.method ?? "")) return notAllowed(res, methods.join(", "));
    route.handle(req, res, {}).catch((error: unknown) => answerFault(error, req, res, log));
  };
}

/** Its path is exact, whatever characters it has; its method is POST, besides those of a handshake. */
function isOfSource({ group }: Route): boolean {
  return group === "inbox" || group === "pull";
}

/** The path without the query; of `http://host/path?query` too, the form in which a proxy may send it. */
function pathOf({ url = "" }: IncomingMessage): string {
  const target = url.startsWith("/") ? url : url.replace(/^https?:\/\/[^/?]*/i, "");
  const query = target.indexOf("?");
  return query < 0 ? target : target.slice(0, query);
}

function expressApp(routes: readonly Route[], log: Log): Express {
  const app = express();
  app.disable("x-powered-by");
  app.disable("etag");
  app.set("query parser", false);
  // `/Health` and `/health/` are not `/health`.
  app.enable("case sensitive routing");
  app.enable("strict routing");
  const patterns = routes.map(({ path, method }) => ({ pattern: pathPattern(path), method }));
  const notServed: RequestHandler = (req, res) => {
    const path = pathOf(req);
    const methods = new Set(patterns.filter(({ pattern }) => pattern.test(path)).map(({ method }) => METHODS[method]));
    if (methods.size === 0) sendError(res, 404, ERRORS.notFound);
    else notAllowed(res, [...methods].join(", "));
  };
  // Express would answer OPTIONS, which no route serves.
  app.use((req, res, next) => (req.method === "OPTIONS" ? notServed(req, res, next) : next()));
  for (const { method, path, handle } of routes) {
    app[method]<Record<string, string>>(path.replace(/\{(\w+)\}/g, ":$1"), (req, res) => handle(req, res, req.params));
  }
  app.use(notServed);
  // Express knows an error handler by its four parameters.
  const onError: ErrorRequestHandler = (error, req, res, _next) => {
    // A badly percent-encoded name in the path names nothing.
    if (error instanceof URIError && !res.headersSent) sendError(res, 404, ERRORS.notFound);
    else answerFault(error, req, res, log);
  };
  app.use(onError);
  return app;
}

/** As `Allow` lists them: express answers HEAD as GET, without the body. */
const METHODS = { get: "GET, HEAD", post: "POST" } as const;

/** The path is served, but not with this method (RFC 9110, section 15.5.6). */
function notAllowed(res: ServerResponse, allowed: string): void {
  res.setHeader("Allow", allowed);
  sendError(res, 405, "Method not allowed");
}

/** An internal error: the details are for the log, without the payload. */
function answerFault(error: unknown, req: IncomingMessage, res: ServerResponse, log: Log): void {
  log.error({ method: req.method, reason: errorText(error) }, "a request failed unexpectedly");
  if (res.headersSent) res.destroy();
  else sendError(res, 500, ERRORS.internal);
}

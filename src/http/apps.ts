import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import express, { type ErrorRequestHandler, type Express, type RequestHandler, type Router } from "express";
import { errorText } from "../model/errors.ts";
import type { Log } from "../ports/runtime.ts";
import { announcesTooMuch, tooLargeMessage } from "./body.ts";
import type { RouteHandler } from "./inboxRoutes.ts";
import { sendError } from "./respond.ts";
import { rootRoute } from "./rootRoute.ts";

export interface AppOptions {
  /** POST handlers by exact path; empty in a process that does not take in messages over HTTP. */
  readonly inbox: ReadonlyMap<string, RouteHandler>;
  /** Health, metrics, admin, the OpenAPI document: on the management port when there is one, else on the data port. */
  readonly operatorRoutes: readonly Router[];
  readonly hasManagementPort: boolean;
  /** `inbox.maxBodyBytes`: the cap of every data-port route. */
  readonly maxBodyBytes: number;
  readonly log: Log;
}

export interface Apps {
  readonly data: RequestListener;
  /** Null when there is no management port. */
  readonly management: RequestListener | null;
}

/** Puts the routes on their ports (spec, "Endpoints"). A path that its port does not serve answers 404, a method that the path does not have 405. */
export function createApps(options: AppOptions): Apps {
  const { inbox, operatorRoutes, hasManagementPort, maxBodyBytes, log } = options;
  const data = expressApp(hasManagementPort ? [rootRoute()] : [rootRoute(), ...operatorRoutes], log);
  return {
    data: dataListener(inbox, data, maxBodyBytes, log),
    management: hasManagementPort ? expressApp(operatorRoutes, log) : null,
  };
}

function dataListener(
  inbox: ReadonlyMap<string, RouteHandler>,
  app: Express,
  maxBodyBytes: number,
  log: Log,
): RequestListener {
  return function onRequest(req, res) {
    // Ahead of the router, which looks at every route in turn and swaps the prototypes of both objects.
    const handle = req.method === "POST" ? inbox.get(pathOf(req)) : undefined;
    if (announcesTooMuch(req, maxBodyBytes)) sendError(res, 413, tooLargeMessage(maxBodyBytes));
    else if (handle === undefined) {
      if (inbox.has(pathOf(req))) notAllowed(res, "POST");
      else app(req, res);
    } else handle(req, res).catch((error: unknown) => answerFault(error, req, res, log));
  };
}

/** The path without the query; of `http://host/path?query` too, the form in which a proxy may send it. */
function pathOf({ url = "" }: IncomingMessage): string {
  const target = url.startsWith("/") ? url : url.replace(/^https?:\/\/[^/?]*/i, "");
  const query = target.indexOf("?");
  return query < 0 ? target : target.slice(0, query);
}

function expressApp(routers: readonly Router[], log: Log): Express {
  const app = express();
  app.disable("x-powered-by");
  app.disable("etag");
  app.set("query parser", false);
  app.enable("case sensitive routing");
  app.enable("strict routing");
  const methods = methodsByPath(routers);
  const notServed: RequestHandler = (req, res) => {
    const allowed = methods(pathOf(req));
    if (allowed === undefined) sendError(res, 404, "Not found");
    else notAllowed(res, allowed);
  };
  // Express would answer OPTIONS by itself: here no route serves it.
  app.use((req, res, next) => (req.method === "OPTIONS" ? notServed(req, res, next) : next()));
  for (const router of routers) app.use(router);
  app.use(notServed);
  // Express knows an error handler by its four parameters.
  const onError: ErrorRequestHandler = (error, req, res, _next) => {
    // A name in the path that is not percent-encoded as it should be names nothing.
    if (error instanceof URIError && !res.headersSent) sendError(res, 404, "Not found");
    else answerFault(error, req, res, log);
  };
  app.use(onError);
  return app;
}

/** The methods of a path, as `Allow` lists them; undefined for a path that is not served. Every route has one or several paths, exact but for `:name`. */
function methodsByPath(routers: readonly Router[]): (path: string) => string | undefined {
  const methods = new Map<string, string>();
  for (const { route } of routers.flatMap(({ stack }) => stack)) {
    const own = new Set(route?.stack.map(({ method }) => method.toUpperCase()));
    // Express answers HEAD as GET, without the body.
    if (own.has("GET")) own.add("HEAD");
    for (const path of [route?.path ?? []].flat()) methods.set(String(path), [...own].join(", "));
  }
  const withNames = [...methods].flatMap(([path, own]) =>
    /\/:\w/.test(path) ? [{ pattern: new RegExp(`^${path.replace(/:\w+/g, "[^/]+")}$`), own }] : [],
  );
  return (path) => methods.get(path) ?? withNames.find(({ pattern }) => pattern.test(path))?.own;
}

/** The path is served, but not with this method (RFC 9110, section 15.5.6). */
function notAllowed(res: ServerResponse, allowed: string): void {
  res.setHeader("Allow", allowed);
  sendError(res, 405, "Method not allowed");
}

/** A fault of ours: the sender learns no more than that, the log everything but the payload. */
function answerFault(error: unknown, req: IncomingMessage, res: ServerResponse, log: Log): void {
  log.error({ method: req.method, reason: errorText(error) }, "a request failed unexpectedly");
  if (res.headersSent) res.destroy();
  else sendError(res, 500, "Internal error");
}

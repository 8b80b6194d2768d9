import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import express, { type ErrorRequestHandler, type Express, type RequestHandler } from "express";
import { errorText } from "../model/errors.ts";
import { pathPattern } from "../model/httpOperations.ts";
import type { Log, Service } from "../ports/runtime.ts";
import { withTimeout } from "../time/wait.ts";
import { ANSWERED, announcesTooMuch, ERRORS, JSON_TYPE, LINGER_MS, sendError, tooLargeMessage } from "./exchange.ts";
import type { HttpRoute } from "./routes.ts";

export interface HttpServerOptions {
  /** Name in logs, such as `http` or `http-management`. */
  readonly name: string;
  /** 0 lets the system choose. */
  readonly port: number;
  /** Address or host name to listen on; IPv6 also in brackets, as in a URL. Absent: every address of the machine. */
  readonly host?: string | undefined;
  /** The configuration keys of the port and the host, for the error when listening fails. */
  readonly portKey: string;
  readonly hostKey?: string | undefined;
  readonly listener: RequestListener;
  readonly log: Log;
  /** Longest wait for requests in flight at shutdown, in ms. */
  readonly drainMs?: number | undefined;
  /** How long connections without a request stay open at shutdown, in ms. */
  readonly idleGraceMs?: number | undefined;
  /** Longest time from the first byte of a request to its last, in ms. */
  readonly requestTimeoutMs?: number | undefined;
  /** Most open connections; further ones are closed at once. */
  readonly maxConnections?: number | undefined;
}

/** Shutdown waits (spec, "Limits"). */
const DRAIN_MS = 5000;
/**
 * A sender cannot know whether a closing connection took its request: for this long, kept connections answer the next
 * request with a 503 that announces the end.
 */
const IDLE_GRACE_MS = 1000;
/**
 * Longer than the 60 s of common load balancers, so that they close idle connections first and never use a closed one.
 */
const KEEP_ALIVE_TIMEOUT_MS = 65_000;
/** Against senders that drip their headers or never send any. */
const HEADERS_TIMEOUT_MS = 20_000;
/** Against senders that drip their body. */
const REQUEST_TIMEOUT_MS = 60_000;
const MAX_CONNECTIONS = 4096;
/** How often refused connections are logged. */
const REFUSAL_LOG_MS = 10_000;
/**
 * A plain HTTP server on one port with a graceful stop: it answers new requests with 503, each as the last one of its
 * connection, waits for those in flight, and then ends every connection.
 */
export class HttpServer implements Service {
  readonly name: string;
  readonly #options: HttpServerOptions;
  readonly #server: Server;
  /** The open ones, by their sockets. */
  readonly #connections = new Map<object, Connection>();
  /** Requests of all connections that have no answer yet. */
  #unanswered = 0;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;
  #onIdle: (() => void) | undefined;
  #refusalLoggedAt = Number.NEGATIVE_INFINITY;

  constructor(options: HttpServerOptions) {
    this.name = options.name;
    this.#options = options;
    const onRequest = (req: IncomingMessage, res: ServerResponse): void => {
      if (this.#connections.get(req.socket)?.admits(res)) this.#handle(req, res);
    };
    const requestTimeout = options.requestTimeoutMs ?? REQUEST_TIMEOUT_MS;
    this.#server = createServer(
      {
        keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
        headersTimeout: Math.min(HEADERS_TIMEOUT_MS, requestTimeout),
        requestTimeout,
        connectionsCheckingInterval: Math.min(5000, requestTimeout),
        noDelay: true,
        // Node would show the first of two, and its raw headers both: they are verified and stored as one text.
        joinDuplicateHeaders: true,
      },
      onRequest,
    );
    this.#server.maxConnections = options.maxConnections ?? MAX_CONNECTIONS;
    // A sender that has ended its side after the request still gets the answer. Node's types lack this option.
    Object.assign(this.#server, { httpAllowHalfOpen: true });
    // Without this Node sends "100 Continue" before the request is checked.
    this.#server.on("checkContinue", onRequest);
    this.#server.on("connection", (socket) => this.#opened(socket));
    this.#server.on("clientError", (error, socket) => this.#failed(error, socket as Socket));
    this.#server.on("drop", () => this.#logRefusal());
  }

  /** The port it listens on; 0 while it does not listen. */
  get port(): number {
    const address = this.#server.address() as AddressInfo | null;
    return address?.port ?? 0;
  }

  /** Requests that have no answer yet. */
  get inFlight(): number {
    return this.#unanswered;
  }

  /** Listens, unless it was stopped. @throws Error that names the address and its configuration keys */
  start(): Promise<void> {
    if (this.#stopping !== undefined) return Promise.resolve();
    this.#starting ??= this.#listen();
    return this.#starting;
  }

  /** Drains and closes; when `cutoff` aborts it waits no longer. */
  stop(cutoff: AbortSignal): Promise<void> {
    this.#stopping ??= this.#drain(cutoff);
    return this.#stopping;
  }

  #handle(req: IncomingMessage, res: ServerResponse): void {
    // Two are joined. RFC 9112, section 3.2: a proxy in front may have used the other one.
    if (req.headers.host?.includes(",")) {
      res.setHeader("Connection", "close");
      sendError(res, 400, "The request has more than one Host header");
    } else if (this.#stopping === undefined) {
      this.#options.listener(req, res);
    } else {
      res.setHeader("Connection", "close");
      sendError(res, 503, ERRORS.shuttingDown);
    }
  }

  #opened(socket: Socket): void {
    socket.once("close", () => {
      this.#connections.delete(socket);
      if (this.#connections.size === 0) this.#onIdle?.();
    });
    const count = (unanswered: number): void => {
      this.#unanswered += unanswered;
      if (this.#unanswered === 0) this.#onIdle?.();
    };
    this.#connections.set(socket, new Connection(socket, count));
  }

  /** What the connection sends is not HTTP, or does not arrive in time. */
  #failed(error: NodeJS.ErrnoException, socket: Socket): void {
    const connection = this.#connections.get(socket);
    if (connection === undefined || !socket.writable || error.code === "ECONNRESET") socket.destroy(error);
    else connection.failed(FAULTS[error.code ?? ""] ?? MALFORMED);
  }

  #logRefusal(): void {
    const now = performance.now();
    if (now - this.#refusalLoggedAt < REFUSAL_LOG_MS) return;
    this.#refusalLoggedAt = now;
    const { maxConnections } = this.#server;
    this.#options.log.warn({ maxConnections }, "connections are refused: too many are open");
  }

  #listen(): Promise<void> {
    const { port, log } = this.#options;
    const host = this.#options.host?.replace(/^\[(.*)\]$/, "$1");
    return new Promise((resolve, reject) => {
      const onError = (error: Error): void => reject(this.#listenError(error));
      this.#server.once("error", onError);
      this.#server.listen({ port, host }, () => {
        this.#server.off("error", onError);
        this.#server.on("error", (error) => log.error({ reason: errorText(error) }, "HTTP server error"));
        log.info({ port: this.port, host }, "listening");
        resolve();
      });
    });
  }

  #listenError(error: NodeJS.ErrnoException): Error {
    const { port, host, portKey, hostKey } = this.#options;
    const hint = LISTEN_HINTS[error.code ?? ""] ?? errorText(error);
    const at = host === undefined ? "" : ` of ${host}`;
    const keys = host === undefined || hostKey === undefined ? portKey : `${portKey}, ${hostKey}`;
    return new Error(`cannot listen on port ${port}${at} (${keys}): ${hint}`, { cause: error });
  }

  async #drain(cutoff: AbortSignal): Promise<void> {
    await this.#starting?.catch(() => {});
    if (!this.#server.listening) return;
    // It keeps listening meanwhile: new clients get the 503, not a refused connection.
    for (const connection of this.#connections.values()) connection.announceEnd();
    const { drainMs = DRAIN_MS, idleGraceMs = IDLE_GRACE_MS } = this.#options;
    const startedAt = performance.now();
    await this.#until(() => this.#connections.size === 0, Math.min(idleGraceMs, drainMs), cutoff);
    const idle = await this.#until(() => this.inFlight === 0, drainMs - (performance.now() - startedAt), cutoff);
    if (!idle) {
      this.#options.log.warn({ requests: this.inFlight }, "requests in flight are cut off");
    }
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    await closed;
  }

  /** Waits until a condition of answers and closed connections holds. @returns false if it did not within `ms` */
  async #until(condition: () => boolean, ms: number, cutoff: AbortSignal): Promise<boolean> {
    if (condition()) return true;
    if (ms <= 0) return false;
    const holds = new Promise<void>((resolve) => {
      this.#onIdle = () => {
        if (condition()) resolve();
      };
    });
    await withTimeout(ms, "draining", () => holds, cutoff).catch(() => {});
    this.#onIdle = undefined;
    return condition();
  }
}

const LISTEN_HINTS: Readonly<Record<string, string>> = {
  EADDRINUSE: "another process listens there already; stop it or choose another port",
  EACCES: "this user may not listen there; ports below 1024 usually need root, choose a higher one",
  EADDRNOTAVAIL: "this machine does not have the address to listen on; leave the host out to listen on every address",
  ENOTFOUND: "the host name is unknown here; give an address of this machine",
  EAI_AGAIN: "looking up the host name failed; give an address of this machine",
  EAFNOSUPPORT: "this machine has no IPv6; give an IPv4 address",
  EINVAL: "the address is not valid for listening; a link-local one needs its interface, as in fe80::1%eth0",
};

/** Most requests of one connection in progress at a time. Common clients send the next one after the answer. */
const MAX_IN_PROGRESS = 100;

/**
 * A connection and its requests. Those in progress keep their answers, whatever follows: garbage, an excess or its end.
 */
class Connection {
  readonly #socket: Socket;
  /** Changes the count of all connections. */
  readonly #count: (unanswered: number) => void;
  #inProgress = 0;
  /** The newest request. */
  #last: ServerResponse | undefined;
  /** Answered when every earlier request is. */
  #fault: Fault | undefined;
  /** It is about to be closed: further requests are ignored. */
  #isRefused = false;
  #isClosed = false;
  readonly #onAnswered = (): void => {
    if (this.#isClosed) return;
    this.#inProgress--;
    this.#count(-1);
    this.#answerFault();
  };

  constructor(socket: Socket, count: (unanswered: number) => void) {
    this.#socket = socket;
    this.#count = count;
    // Requests may listen for its end.
    socket.setMaxListeners(2 * MAX_IN_PROGRESS);
    // A response queued behind others emits no event of its own.
    socket.once("close", () => {
      this.#isClosed = true;
      this.#count(-this.#inProgress);
    });
  }

  /** @returns false for a request that is not to be answered: the connection is about to be closed */
  admits(res: ServerResponse): boolean {
    if (this.#isRefused) return false;
    this.#last = res;
    this.#inProgress++;
    this.#count(1);
    res.once("close", this.#onAnswered);
    if (this.#inProgress <= MAX_IN_PROGRESS) return true;
    this.#isRefused = true;
    // In the next turn: Node resumes the socket behind each request.
    setImmediate(() => this.#socket.pause());
    res.setHeader("Connection", "close");
    res.setHeader("Retry-After", 1);
    sendError(res, 503, "Too many pipelined requests");
    return false;
  }

  announceEnd(): void {
    if (this.#last?.headersSent === false) this.#last.setHeader("Connection", "close");
  }

  failed(fault: Fault): void {
    // The parser reports it again with each further read.
    if (this.#fault !== undefined || this.#isRefused) return;
    this.#fault = fault;
    this.#answerFault();
  }

  #answerFault(): void {
    if (this.#fault === undefined) return;
    // The request whose body is malformed will never be complete.
    const dangling = this.#last !== undefined && !this.#last.req.complete && !this.#last.writableFinished;
    if (this.#inProgress > (dangling ? 1 : 0)) return;
    if (dangling && this.#last?.headersSent) return;
    endWith(this.#socket, this.#fault);
  }
}

interface Fault {
  readonly status: string;
  readonly error: string;
}

const MALFORMED: Fault = { status: "400 Bad Request", error: "Malformed HTTP request" };
const FAULTS: Readonly<Record<string, Fault>> = {
  HPE_HEADER_OVERFLOW: { status: "431 Request Header Fields Too Large", error: "The request headers are too large" },
  HPE_CHUNK_EXTENSIONS_OVERFLOW: { status: "413 Payload Too Large", error: "The chunk extensions are too large" },
  ERR_HTTP_REQUEST_TIMEOUT: { status: "408 Request Timeout", error: "The request was not received in time" },
};

/** Answers what is not a request, and ends the connection so that the answer arrives: see {@link send}. */
function endWith(socket: Socket, { status, error }: Fault): void {
  const body = JSON.stringify({ error });
  const head = `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Type: ${JSON_TYPE}\r\nContent-Length: ${Buffer.byteLength(body)}`;
  socket.end(`${head}\r\n\r\n${body}`);
  socket.resume();
  const cutOff = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once("close", () => clearTimeout(cutOff));
}

interface AppOptions {
  /** All routes of the process. */
  readonly routes: readonly HttpRoute[];
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
 * Puts the routes on their ports (spec, "Endpoints"): 404 for a path that its port does not serve, 405 for a method.
 */
export function createApps({ routes, hasManagementPort, maxBodyBytes, log }: AppOptions): Apps {
  const operator = routes.filter(({ port }) => port === "operator");
  const data = hasManagementPort ? routes.filter(({ port }) => port === "data") : routes;
  return {
    data: listener(data, maxBodyBytes, log),
    management: hasManagementPort ? listener(operator, Number.POSITIVE_INFINITY, log) : null,
  };
}

function listener(routes: readonly HttpRoute[], maxBodyBytes: number, log: Log): RequestListener {
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
function isOfSource({ group }: HttpRoute): boolean {
  return group === "inbox" || group === "pull";
}

/** The path without the query; of `http://host/path?query` too, the form in which a proxy may send it. */
function pathOf({ url = "" }: IncomingMessage): string {
  const target = url.startsWith("/") ? url : url.replace(/^https?:\/\/[^/?]*/i, "");
  const query = target.indexOf("?");
  return query < 0 ? target : target.slice(0, query);
}

function expressApp(routes: readonly HttpRoute[], log: Log): Express {
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

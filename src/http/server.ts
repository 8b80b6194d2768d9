import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { errorText } from "../model/errors.ts";
import type { Log, Service } from "../ports/runtime.ts";
import { withTimeout } from "../time/wait.ts";
import { Connections } from "./connections.ts";
import { ERRORS, sendError } from "./respond.ts";

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
  /** Most pipelined requests that wait in memory; for tests. */
  readonly maxWaiting?: number | undefined;
}

/** Shutdown waits (spec, "Limits"). */
const DRAIN_MS = 5000;
/**
 * The sender of a request that meets a closing connection cannot know whether it was received. For this long the next
 * request of every kept connection gets a 503 that announces the end.
 */
const IDLE_GRACE_MS = 1000;
/** The first request of a connection that was just accepted is on its way. */
const FIRST_REQUEST_MS = 250;
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
  readonly #connections: Connections;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;
  #onIdle: (() => void) | undefined;
  #refusalLoggedAt = Number.NEGATIVE_INFINITY;

  constructor(options: HttpServerOptions) {
    this.name = options.name;
    this.#options = options;
    this.#connections = new Connections({
      handle: (req, res) => this.#handle(req, res),
      onIdle: () => this.#onIdle?.(),
      maxWaiting: options.maxWaiting,
    });
    const onRequest = (req: IncomingMessage, res: ServerResponse): void => this.#connections.requested(req, res);
    const requestTimeout = options.requestTimeoutMs ?? REQUEST_TIMEOUT_MS;
    this.#server = createServer(
      {
        keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
        headersTimeout: Math.min(HEADERS_TIMEOUT_MS, requestTimeout),
        requestTimeout,
        connectionsCheckingInterval: Math.min(5000, requestTimeout),
        noDelay: true,
      },
      onRequest,
    );
    this.#server.maxConnections = options.maxConnections ?? MAX_CONNECTIONS;
    // A sender that has ended its side after the request still gets the answer. Node's types lack this option.
    Object.assign(this.#server, { httpAllowHalfOpen: true });
    // Without this Node sends "100 Continue" before the request is checked.
    this.#server.on("checkContinue", onRequest);
    this.#server.on("connection", (socket) => this.#connections.opened(socket));
    this.#server.on("clientError", (error, socket) => this.#connections.failed(error, socket as Socket));
    // Without a listener Node closes the connection, and the answers to earlier requests are lost.
    this.#server.on("connect", (_req, socket) => this.#connections.requestedTunnel(socket as Socket));
    this.#server.on("drop", () => this.#logRefusal());
  }

  /** The port it listens on; 0 while it does not listen. */
  get port(): number {
    const address = this.#server.address() as AddressInfo | null;
    return address?.port ?? 0;
  }

  /** Requests that have no answer yet. */
  get inFlight(): number {
    return this.#connections.unanswered;
  }

  /**
   * Listens. After `stop` it does nothing.
   *
   * @throws Error that names the address and its configuration keys when listening fails
   */
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
    if (hasTwoHosts(req.rawHeaders)) {
      // RFC 9112, section 3.2: a proxy in front may have used the other one.
      res.setHeader("Connection", "close");
      sendError(res, 400, "The request has more than one Host header");
    } else if (this.#stopping === undefined) {
      this.#options.listener(req, res);
    } else {
      res.setHeader("Connection", "close");
      sendError(res, 503, ERRORS.shuttingDown);
    }
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
    this.#connections.announceEnd();
    const { drainMs = DRAIN_MS, idleGraceMs = IDLE_GRACE_MS } = this.#options;
    const startedAt = performance.now();
    await this.#until(() => this.#connections.open === 0, Math.min(idleGraceMs, drainMs), cutoff);
    const idle = await this.#until(() => this.inFlight === 0, drainMs - (performance.now() - startedAt), cutoff);
    if (!idle) {
      this.#options.log.warn({ requests: this.inFlight }, "requests in flight are cut off");
    }
    // Node then closes idle connections, except those that have not sent a request yet.
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    await this.#until(() => this.#connections.open === 0, FIRST_REQUEST_MS, cutoff);
    this.#server.closeAllConnections();
    this.#connections.closeTunnels();
    await closed;
  }

  /**
   * Waits until a condition holds that only answers and closed connections bring about.
   *
   * @returns false when it did not within `ms`
   */
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

/** @param raw names and values in turn */
function hasTwoHosts(raw: readonly string[]): boolean {
  let hosts = 0;
  for (let i = 0; i < raw.length; i += 2) {
    if (raw[i]?.length === 4 && raw[i]?.toLowerCase() === "host") hosts++;
  }
  return hosts > 1;
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

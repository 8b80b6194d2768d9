import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { errorText } from "../model/errors.ts";
import type { Log, Service } from "../ports/runtime.ts";
import { withTimeout } from "../time/wait.ts";
import { ERRORS, JSON_TYPE, LINGER_MS, sendError } from "./exchange.ts";

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
 * Most requests, of all connections together, that were read and wait. One read brings up to 2,500 small ones, each a
 * few kilobytes in memory; a connection that exceeds the limit is closed.
 */
const MAX_WAITING = 10_000;

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
  /** Node's server no longer tracks them. */
  readonly #tunnels = new Set<Socket>();
  /** Requests of all connections that have no answer yet, and those of them that wait for their turn. */
  #unanswered = 0;
  #waiting = 0;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;
  #onIdle: (() => void) | undefined;
  #refusalLoggedAt = Number.NEGATIVE_INFINITY;

  constructor(options: HttpServerOptions) {
    this.name = options.name;
    this.#options = options;
    const onRequest = (req: IncomingMessage, res: ServerResponse): void =>
      this.#connections.get(req.socket)?.requested({ req, res });
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
    // Without a listener Node closes the connection, and the answers to earlier requests are lost.
    this.#server.on("connect", (_req, socket) => this.#requestedTunnel(socket as Socket));
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

  readonly #handle = (req: IncomingMessage, res: ServerResponse): void => {
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
  };

  #opened(socket: Socket): void {
    socket.once("close", () => {
      this.#connections.delete(socket);
      if (this.#connections.size === 0) this.#onIdle?.();
    });
    const connection = new Connection(socket, {
      handle: this.#handle,
      mayWait: () => this.#waiting < (this.#options.maxWaiting ?? MAX_WAITING),
      count: (unanswered, waiting) => {
        this.#waiting += waiting;
        this.#unanswered += unanswered;
        if (unanswered < 0 && this.#unanswered === 0) this.#onIdle?.();
      },
    });
    this.#connections.set(socket, connection);
  }

  /** What the connection sends is not HTTP, or does not arrive in time. */
  #failed(error: NodeJS.ErrnoException, socket: Socket): void {
    const connection = this.#connections.get(socket);
    if (connection === undefined || !socket.writable || error.code === "ECONNRESET") socket.destroy(error);
    else connection.failed(FAULTS[error.code ?? ""] ?? MALFORMED);
  }

  /** The connection sent a CONNECT request; Node's server no longer tracks it. */
  #requestedTunnel(socket: Socket): void {
    this.#tunnels.add(socket);
    socket.once("close", () => this.#tunnels.delete(socket));
    // An error closes it; without a listener it would end the process.
    socket.on("error", () => {});
    this.#connections.get(socket)?.failed(NO_TUNNEL);
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
    // Node then closes idle connections, except those that have not sent a request yet.
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    await this.#until(() => this.#connections.size === 0, FIRST_REQUEST_MS, cutoff);
    this.#server.closeAllConnections();
    for (const socket of this.#tunnels) socket.destroy();
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

/** Most requests of one connection in progress at a time; what a client pipelines beyond them waits. */
const MAX_IN_PROGRESS = 16;

interface Exchange {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
}

interface ConnectionOptions {
  /** Answers a request, now or later. */
  readonly handle: (req: IncomingMessage, res: ServerResponse) => void;
  /** Whether one more request may wait. */
  readonly mayWait: () => boolean;
  /** Changes the counts of all connections. */
  readonly count: (unanswered: number, waiting: number) => void;
}

/**
 * A connection and its requests. A client may pipeline requests: only so many are in progress, and the connection is
 * not read from meanwhile, so that it cannot starve others. Whatever a connection sends after its requests, garbage or
 * its end, the requests keep their answers.
 */
class Connection {
  readonly #socket: Socket;
  readonly #options: ConnectionOptions;
  /** Requests passed to `handle` and not answered. */
  #inProgress = 0;
  /** Read and not yet passed to `handle`, oldest first. */
  readonly #waiting: Exchange[] = [];
  /** The newest request. */
  #last: Exchange | undefined;
  /** Answered when every earlier request is. */
  #fault: Fault | undefined;
  /** It is about to be closed: further requests are ignored. */
  #isRefused = false;
  #turnIsDue = false;
  #isClosed = false;
  readonly #onAnswered = (): void => {
    if (this.#isClosed) return;
    this.#inProgress--;
    this.#options.count(-1, 0);
    if (this.#waiting.length > 0) this.#nextTurn();
    else this.#answerFault();
  };
  readonly #takeTurn = (): void => {
    this.#turnIsDue = false;
    if (this.#isClosed) return;
    while (this.#inProgress < MAX_IN_PROGRESS) {
      const exchange = this.#waiting.shift();
      if (exchange === undefined) break;
      this.#options.count(0, -1);
      this.#start(exchange);
    }
    if (this.#waiting.length > 0) this.#socket.pause();
    else this.#socket.resume();
  };

  constructor(socket: Socket, options: ConnectionOptions) {
    this.#socket = socket;
    this.#options = options;
    socket.once("close", () => this.#closed());
    // Node reports no error for an upgrade request that stays incomplete.
    socket.once("end", () => {
      if (this.#last?.req.complete === false) this.failed(MALFORMED);
    });
  }

  requested(exchange: Exchange): void {
    if (this.#isRefused) return;
    this.#last = exchange;
    if (this.#inProgress < MAX_IN_PROGRESS && this.#waiting.length === 0) {
      this.#options.count(1, 0);
      this.#start(exchange);
    } else if (this.#options.mayWait()) {
      this.#options.count(1, 1);
      this.#waiting.push(exchange);
      this.#nextTurn();
    } else {
      this.#refuse(exchange);
    }
  }

  announceEnd(): void {
    const res = this.#last?.res;
    if (res !== undefined && !res.headersSent) res.setHeader("Connection", "close");
  }

  failed(fault: Fault): void {
    // The parser reports it again with each further read.
    if (this.#fault !== undefined || this.#isRefused) return;
    this.#fault = fault;
    this.#answerFault();
  }

  #start({ req, res }: Exchange): void {
    this.#inProgress++;
    res.once("close", this.#onAnswered);
    this.#options.handle(req, res);
  }

  /** After the present read: all its requests arrive at once, and Node resumes the socket at the end of each. */
  #nextTurn(): void {
    if (this.#turnIsDue) return;
    this.#turnIsDue = true;
    setImmediate(this.#takeTurn);
  }

  /** Answers the requests in progress, then refuses this one and all after it. */
  #refuse({ res }: Exchange): void {
    this.#isRefused = true;
    res.setHeader("Connection", "close");
    res.setHeader("Retry-After", 1);
    sendError(res, 503, "Too many requests were sent ahead of their answers");
  }

  #answerFault(): void {
    if (this.#fault === undefined) return;
    // The request whose body is malformed will never be complete.
    const dangling = this.#last !== undefined && !this.#last.req.complete && !this.#last.res.writableFinished;
    if (this.#inProgress + this.#waiting.length > (dangling ? 1 : 0)) return;
    if (dangling && this.#last?.res.headersSent) return;
    endWith(this.#socket, this.#fault);
  }

  /** Requests that wait emit no event of their own. */
  #closed(): void {
    this.#isClosed = true;
    const waiting = this.#waiting.splice(0).length;
    this.#options.count(-this.#inProgress - waiting, -waiting);
  }
}

interface Fault {
  readonly status: string;
  readonly error: string;
}

const MALFORMED: Fault = { status: "400 Bad Request", error: "Malformed HTTP request" };
const NO_TUNNEL: Fault = { status: "501 Not Implemented", error: "CONNECT is not supported" };
const FAULTS: Readonly<Record<string, Fault>> = {
  HPE_HEADER_OVERFLOW: { status: "431 Request Header Fields Too Large", error: "The request headers are too large" },
  HPE_CHUNK_EXTENSIONS_OVERFLOW: { status: "413 Payload Too Large", error: "The chunk extensions are too large" },
  ERR_HTTP_REQUEST_TIMEOUT: { status: "408 Request Timeout", error: "The request did not come in time" },
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

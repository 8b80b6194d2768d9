import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { errorText } from "../model/errors.ts";
import type { Log, Service } from "../ports/runtime.ts";
import { sendError } from "./respond.ts";

export interface HttpServerOptions {
  /** Name in logs, such as `http` or `http-management`. */
  readonly name: string;
  /** 0 lets the system choose. */
  readonly port: number;
  /** The configuration key of the port, for the error when it cannot be had. */
  readonly portKey: string;
  /** Address to listen on; absent: every address of the machine. */
  readonly host?: string | undefined;
  readonly listener: RequestListener;
  readonly log: Log;
  /** Longest wait for requests in flight at shutdown, in ms. */
  readonly drainMs?: number | undefined;
}

/** Shutdown waits (spec, "Limits"). */
const DRAIN_MS = 5000;
/** Longer than the 60 s of common load balancers, so that they close idle connections first and never meet a closed one. */
const KEEP_ALIVE_TIMEOUT_MS = 65_000;
/** For a sender that drips its headers; an idle connection does not count. */
const HEADERS_TIMEOUT_MS = 20_000;
/** For a sender that drips its body. */
const REQUEST_TIMEOUT_MS = 120_000;

/**
 * A plain HTTP server on one port that stops in order: from `stop` on it answers new requests with 503, waits for those in
 * flight, and then ends every connection.
 */
export class HttpServer implements Service {
  readonly name: string;
  readonly #options: HttpServerOptions;
  readonly #server: Server;
  #inFlight = 0;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;
  #onIdle: (() => void) | undefined;
  readonly #onAnswered = (): void => {
    this.#inFlight--;
    if (this.#inFlight === 0) this.#onIdle?.();
  };

  constructor(options: HttpServerOptions) {
    this.name = options.name;
    this.#options = options;
    const onRequest = (req: IncomingMessage, res: ServerResponse): void => this.#handle(req, res);
    this.#server = createServer(
      {
        keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
        headersTimeout: HEADERS_TIMEOUT_MS,
        requestTimeout: REQUEST_TIMEOUT_MS,
        connectionsCheckingInterval: 5000,
        noDelay: true,
      },
      onRequest,
    );
    // Without this Node sends "100 Continue" before anybody has looked at the request.
    this.#server.on("checkContinue", onRequest);
  }

  /** The port it listens on; 0 when it does not. */
  get port(): number {
    const address = this.#server.address() as AddressInfo | null;
    return address?.port ?? 0;
  }

  /**
   * Listens. After `stop` it does nothing.
   *
   * @throws Error that names the port and its configuration key when the port cannot be had
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
    if (this.#stopping === undefined) {
      this.#inFlight++;
      res.once("close", this.#onAnswered);
      this.#options.listener(req, res);
    } else {
      res.setHeader("Connection", "close");
      sendError(res, 503, "Service is shutting down");
    }
  }

  #listen(): Promise<void> {
    const { port, host, log } = this.#options;
    return new Promise((resolve, reject) => {
      const onError = (error: Error): void => reject(this.#listenError(error));
      this.#server.once("error", onError);
      this.#server.listen({ port, host }, () => {
        this.#server.off("error", onError);
        this.#server.on("error", (error) => log.error({ reason: errorText(error) }, "the HTTP server has a fault"));
        log.info({ port: this.port }, "listening");
        resolve();
      });
    });
  }

  #listenError(error: NodeJS.ErrnoException): Error {
    const { port, portKey } = this.#options;
    const hint = LISTEN_HINTS[error.code ?? ""] ?? errorText(error);
    return new Error(`cannot listen on port ${port} (${portKey}): ${hint}`, { cause: error });
  }

  async #drain(cutoff: AbortSignal): Promise<void> {
    await this.#starting?.catch(() => {});
    if (!this.#server.listening) return;
    // It goes on listening meanwhile: who comes now gets the 503, not a refused connection.
    this.#server.closeIdleConnections();
    const idle = await this.#idle(cutoff);
    if (!idle) this.#options.log.warn({ requests: this.#inFlight }, "requests in flight are cut off");
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    await closed;
  }

  /** @returns whether every request in flight was answered before the time was over */
  #idle(cutoff: AbortSignal): Promise<boolean> {
    if (this.#inFlight === 0) return Promise.resolve(true);
    if (cutoff.aborted) return Promise.resolve(false);
    return new Promise((resolve) => {
      const giveUp = (): void => settle(false);
      const timer = setTimeout(giveUp, this.#options.drainMs ?? DRAIN_MS);
      const settle = (idle: boolean): void => {
        clearTimeout(timer);
        cutoff.removeEventListener("abort", giveUp);
        this.#onIdle = undefined;
        resolve(idle);
      };
      cutoff.addEventListener("abort", giveUp, { once: true });
      this.#onIdle = () => settle(true);
    });
  }
}

const LISTEN_HINTS: Readonly<Record<string, string>> = {
  EADDRINUSE: "another process listens there already; stop it or choose another port",
  EACCES: "this user may not listen there; ports below 1024 usually need root, choose a higher one",
  EADDRNOTAVAIL: "this machine does not have the address to listen on",
};

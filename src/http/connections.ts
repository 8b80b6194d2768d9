import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { JSON_TYPE, LINGER_MS, sendError } from "./respond.ts";

/** Most requests of one connection that are in work at the same time; what a client sends ahead waits its turn. */
const MAX_IN_WORK = 16;

/**
 * Most requests, of all connections together, that were read and wait their turn. One read brings up to 2,500 small ones, each a few kilobytes in
 * memory; a connection that passes the bound is closed.
 */
const MAX_WAITING = 10_000;

export interface ConnectionsOptions {
  /** Answers a request, now or later. */
  readonly handle: (req: IncomingMessage, res: ServerResponse) => void;
  /** No request is unanswered any more, or no connection open. */
  readonly onIdle: () => void;
  readonly maxWaiting?: number | undefined;
}

interface Exchange {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
}

/**
 * The connections of a server, and what each of them has asked for. A client may send requests ahead of their answers ("pipelining"): each connection
 * has only so many in work and is not read from meanwhile, so that it cannot get ahead of others. What a connection sends after its requests, be it
 * garbage or its end, takes no answer away from them.
 */
export class Connections {
  readonly #options: ConnectionsOptions;
  readonly #maxWaiting: number;
  /** The open ones. */
  readonly #bySocket = new Map<object, Connection>();
  /** Node's server has forgotten them. */
  readonly #tunnels = new Set<Socket>();
  #unanswered = 0;
  #waiting = 0;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
    this.#maxWaiting = options.maxWaiting ?? MAX_WAITING;
  }

  /** Requests that have no answer yet. */
  get unanswered(): number {
    return this.#unanswered;
  }

  /** Connections that are open. */
  get open(): number {
    return this.#bySocket.size;
  }

  /** A connection was accepted. */
  opened(socket: Socket): void {
    socket.once("close", () => {
      this.#bySocket.delete(socket);
      if (this.#bySocket.size === 0) this.#options.onIdle();
    });
    this.#bySocket.set(
      socket,
      new Connection(socket, {
        handle: this.#options.handle,
        mayWait: () => this.#waiting < this.#maxWaiting,
        count: (unanswered, waiting) => {
          this.#waiting += waiting;
          this.#unanswered += unanswered;
          if (unanswered < 0 && this.#unanswered === 0) this.#options.onIdle();
        },
      }),
    );
  }

  /** The head of a request was read. */
  requested(req: IncomingMessage, res: ServerResponse): void {
    this.#bySocket.get(req.socket)?.requested({ req, res });
  }

  /**
   * What the connection sends cannot be read as HTTP, or does not come in time.
   *
   * @param error the `clientError` of Node's server
   */
  failed(error: NodeJS.ErrnoException, socket: Socket): void {
    const connection = this.#bySocket.get(socket);
    if (connection === undefined || !socket.writable || error.code === "ECONNRESET") socket.destroy(error);
    else connection.failed(FAULTS[error.code ?? ""] ?? MALFORMED);
  }

  /** The connection sends a CONNECT request, and Node's server has given it out of its hands. */
  asksForTunnel(socket: Socket): void {
    this.#tunnels.add(socket);
    socket.once("close", () => this.#tunnels.delete(socket));
    // An error closes it; without a listener it would end the process.
    socket.on("error", () => {});
    this.#bySocket.get(socket)?.failed(NO_TUNNEL);
  }

  /** Announces with the last answer that each connection has coming that it is the last: a client sends nothing behind it. */
  announceEnd(): void {
    for (const connection of this.#bySocket.values()) connection.announceEnd();
  }

  /** Closes at once what Node's server does not close any more. */
  closeTunnels(): void {
    for (const socket of this.#tunnels) socket.destroy();
  }
}

interface ConnectionOptions {
  readonly handle: ConnectionsOptions["handle"];
  /** Whether one more request may wait. */
  readonly mayWait: () => boolean;
  /** Changes the counts of all connections. */
  readonly count: (unanswered: number, waiting: number) => void;
}

class Connection {
  readonly #socket: Socket;
  readonly #options: ConnectionOptions;
  /** Handed over and not answered. */
  #inWork = 0;
  /** Read and not handed over yet, the oldest first. */
  readonly #waiting: Exchange[] = [];
  /** The newest request. */
  #last: Exchange | undefined;
  /** What is said when all is answered that came before it. */
  #fault: Fault | undefined;
  /** It is about to be closed: what it still asks for is not looked at. */
  #isRefused = false;
  #turnIsDue = false;
  #isClosed = false;
  readonly #onAnswered = (): void => {
    if (this.#isClosed) return;
    this.#inWork--;
    this.#options.count(-1, 0);
    if (this.#waiting.length > 0) this.#nextTurn();
    else this.#sayFault();
  };
  readonly #takeTurn = (): void => {
    this.#turnIsDue = false;
    if (this.#isClosed) return;
    while (this.#inWork < MAX_IN_WORK) {
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
    // Of a request that asks for an upgrade Node does not say that it will never be whole.
    socket.once("end", () => {
      if (this.#last?.req.complete === false) this.failed(MALFORMED);
    });
  }

  requested(exchange: Exchange): void {
    if (this.#isRefused) return;
    this.#last = exchange;
    if (this.#inWork < MAX_IN_WORK && this.#waiting.length === 0) {
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
    // The parser says it again with each further read.
    if (this.#fault !== undefined || this.#isRefused) return;
    this.#fault = fault;
    this.#sayFault();
  }

  #start({ req, res }: Exchange): void {
    this.#inWork++;
    res.once("close", this.#onAnswered);
    this.#options.handle(req, res);
  }

  /** Not before the present read is over: all requests in it come at once, and Node resumes the socket at the end of each. */
  #nextTurn(): void {
    if (this.#turnIsDue) return;
    this.#turnIsDue = true;
    setImmediate(this.#takeTurn);
  }

  /** Answers what is in work, then says no to this request and to all behind it. */
  #refuse({ res }: Exchange): void {
    this.#isRefused = true;
    res.setHeader("Connection", "close");
    res.setHeader("Retry-After", 1);
    sendError(res, 503, "Too many requests were sent ahead of their answers");
  }

  #sayFault(): void {
    if (this.#fault === undefined) return;
    // The request whose body cannot be read will never be whole.
    const dangling = this.#last !== undefined && !this.#last.req.complete && !this.#last.res.writableFinished;
    if (this.#inWork + this.#waiting.length > (dangling ? 1 : 0)) return;
    if (dangling && this.#last?.res.headersSent) return;
    endWith(this.#socket, this.#fault);
  }

  /** Requests behind the one that was being answered never hear of it. */
  #closed(): void {
    this.#isClosed = true;
    const waiting = this.#waiting.splice(0).length;
    this.#options.count(-this.#inWork - waiting, -waiting);
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

/** Writes an answer to what is no request, and ends the connection so that the answer arrives: see `respond.ts`. */
function endWith(socket: Socket, { status, error }: Fault): void {
  const body = JSON.stringify({ error });
  const head = `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Type: ${JSON_TYPE}\r\nContent-Length: ${Buffer.byteLength(body)}`;
  socket.end(`${head}\r\n\r\n${body}`);
  socket.resume();
  const cutOff = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once("close", () => clearTimeout(cutOff));
}

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { JSON_TYPE, LINGER_MS, sendError } from "./respond.ts";

/** Most requests of one connection in progress at a time; what a client pipelines beyond them waits. */
const MAX_IN_PROGRESS = 16;

/**
 * Most requests, of all connections together, that were read and wait. One read brings up to 2,500 small ones, each a
 * few kilobytes in memory; a connection that exceeds the limit is closed.
 */
const MAX_WAITING = 10_000;

interface ConnectionsOptions {
  /** Answers a request, now or later. */
  readonly handle: (req: IncomingMessage, res: ServerResponse) => void;
  /** Called when every request is answered, or no connection is open. */
  readonly onIdle: () => void;
  readonly maxWaiting?: number | undefined;
}

interface Exchange {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
}

/**
 * The connections of a server and their requests. A client may pipeline requests: each connection has only so many in
 * progress and is not read from meanwhile, so that it cannot starve others. Whatever a connection sends after its
 * requests, garbage or its end, the requests keep their answers.
 */
export class Connections {
  readonly #options: ConnectionsOptions;
  readonly #maxWaiting: number;
  /** The open ones. */
  readonly #bySocket = new Map<object, Connection>();
  /** Node's server no longer tracks them. */
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
   * What the connection sends is not HTTP, or does not arrive in time.
   *
   * @param error the `clientError` of Node's server
   */
  failed(error: NodeJS.ErrnoException, socket: Socket): void {
    const connection = this.#bySocket.get(socket);
    if (connection === undefined || !socket.writable || error.code === "ECONNRESET") socket.destroy(error);
    else connection.failed(FAULTS[error.code ?? ""] ?? MALFORMED);
  }

  /** The connection sent a CONNECT request; Node's server no longer tracks it. */
  requestedTunnel(socket: Socket): void {
    this.#tunnels.add(socket);
    socket.once("close", () => this.#tunnels.delete(socket));
    // An error closes it; without a listener it would end the process.
    socket.on("error", () => {});
    this.#bySocket.get(socket)?.failed(NO_TUNNEL);
  }

  /** Announces the end of each connection with its last answer, so that a client sends nothing after it. */
  announceEnd(): void {
    for (const connection of this.#bySocket.values()) connection.announceEnd();
  }

  /** Closes at once the connections that Node's server no longer tracks. */
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

/** Answers what is not a request, and ends the connection so that the answer arrives: see `respond.ts`. */
function endWith(socket: Socket, { status, error }: Fault): void {
  const body = JSON.stringify({ error });
  const head = `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Type: ${JSON_TYPE}\r\nContent-Length: ${Buffer.byteLength(body)}`;
  socket.end(`${head}\r\n\r\n${body}`);
  socket.resume();
  const cutOff = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once("close", () => clearTimeout(cutOff));
}

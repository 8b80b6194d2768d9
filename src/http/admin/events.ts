import type { ServerResponse } from "node:http";
import { errorText } from "../../model/errors.ts";
import type { Log, Service } from "../../ports/runtime.ts";
import { ERRORS, sendError } from "../exchange.ts";

interface EventStreamOptions {
  /** Reads what the clients follow. */
  readonly read: () => Promise<object>;
  readonly log: Log;
  /** Between two reads, in ms. */
  readonly intervalMs?: number;
  /** Between two comments, which keep connections open, in ms. */
  readonly heartbeatMs?: number;
  readonly maxClients?: number;
}

const INTERVAL_MS = 3000;
const HEARTBEAT_MS = 15_000;
const MAX_CLIENTS = 64;
/** A client that does not read is cut off before it holds more than this. */
const MAX_BUFFERED_BYTES = 4_194_304;

/**
 * Server-sent events of `GET /admin/events`. All clients share one reader, which reads while at least one is connected.
 * It stops together with the HTTP servers, which wait for its answers.
 */
export class EventStream implements Service {
  readonly name = "admin events";
  readonly #options: Required<EventStreamOptions>;
  /** Each with whether its credentials still hold. */
  readonly #clients = new Map<ServerResponse, () => boolean>();
  /** The newest event, for clients that join between two reads. */
  #last: string | undefined;
  #next: NodeJS.Timeout | undefined;
  #heartbeat: NodeJS.Timeout | undefined;
  #isReading = false;
  /** The last read failed: an outage is logged once. */
  #isAway = false;
  #isStopped = false;

  constructor(options: EventStreamOptions) {
    this.#options = { intervalMs: INTERVAL_MS, heartbeatMs: HEARTBEAT_MS, maxClients: MAX_CLIENTS, ...options };
  }

  async start(): Promise<void> {}

  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const res of this.#clients.keys()) res.end();
    this.#pause();
  }

  /**
   * Sends events until the client leaves or `isAdmitted`, asked before each event, says that its credentials no longer
   * hold.
   */
  follow(res: ServerResponse, isAdmitted: () => boolean): void {
    if (this.#clients.size >= this.#options.maxClients) {
      res.setHeader("Retry-After", 30);
      sendError(res, 503, ERRORS.tooManyFollowers);
      return;
    }
    res.writeHead(200, {
      "Content-Type": "text/event-stream; charset=utf-8",
      // A proxy that collects answers would hold events back.
      "X-Accel-Buffering": "no",
    });
    if (res.req.method === "HEAD" || this.#isStopped) {
      res.end();
      return;
    }
    this.#clients.set(res, isAdmitted);
    res.once("close", () => this.#removeClient(res));
    res.write(this.#last ?? ": connected\n\n");
    if (this.#clients.size > 1) return;
    this.#heartbeat = setInterval(() => this.#send(": \n\n"), this.#options.heartbeatMs);
    void this.#read();
  }

  #removeClient(res: ServerResponse): void {
    this.#clients.delete(res);
    if (this.#clients.size === 0) this.#pause();
  }

  #pause(): void {
    clearTimeout(this.#next);
    clearInterval(this.#heartbeat);
    // It would be old for the next client.
    this.#last = undefined;
  }

  async #read(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    let event: string;
    try {
      event = `event: overview\ndata: ${JSON.stringify(await this.#options.read())}\n\n`;
      this.#isAway = false;
    } catch (error) {
      if (!this.#isAway) this.#options.log.warn({ reason: errorText(error) }, "the overview cannot be read");
      this.#isAway = true;
      event = `event: unavailable\ndata: ${JSON.stringify({ error: ERRORS.storageFailed })}\n\n`;
    }
    this.#isReading = false;
    if (this.#isStopped || this.#clients.size === 0) return;
    this.#last = event;
    this.#send(event);
    this.#next = setTimeout(() => void this.#read(), this.#options.intervalMs);
  }

  #send(text: string): void {
    for (const [res, isAdmitted] of this.#clients) {
      if (res.writableLength > MAX_BUFFERED_BYTES) res.destroy();
      else if (isAdmitted()) res.write(text);
      else res.end();
    }
  }
}

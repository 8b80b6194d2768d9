import { once } from "node:events";
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";

/** A request as it came. */
export interface ReceivedRequest {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  /** Names and values in turn, unchanged. */
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
}

/** What the receiver does with a request. */
export type Answer =
  | {
      readonly status: number;
      readonly headers?: Readonly<Record<string, string>>;
      readonly body?: string | Buffer;
      /** The answer waits for this. */
      readonly after?: Promise<unknown>;
    }
  /** Breaks the connection without an answer. */
  | "drop"
  | ((request: ReceivedRequest, response: ServerResponse) => void);

/** An HTTP receiver that records what it gets and gives the answers that a test sets; default: 200 without a body. */
export class Receiver implements AsyncDisposable {
  readonly requests: ReceivedRequest[] = [];
  /** The answer to every request that no answer was queued for. */
  answer: Answer = { status: 200 };
  /** Connections accepted so far. */
  connections = 0;
  readonly #queued: Answer[] = [];
  #arrived: (() => void)[] = [];
  #server: Server | undefined;
  #port = 0;

  static async start(): Promise<Receiver> {
    const receiver = new Receiver();
    await receiver.listen();
    return receiver;
  }

  /** Reserves a port on which nothing listens until `listen` is called. */
  static async reserved(): Promise<Receiver> {
    const receiver = await Receiver.start();
    await receiver.close();
    return receiver;
  }

  get port(): number {
    return this.#port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Queues answers for the next requests, one each. */
  answerNext(...answers: readonly Answer[]): void {
    this.#queued.push(...answers);
  }

  /** The first `count` requests; waits until they are there. */
  async received(count: number): Promise<readonly ReceivedRequest[]> {
    while (this.requests.length < count) await new Promise<void>((resolve) => this.#arrived.push(resolve));
    return this.requests.slice(0, count);
  }

  /** Starts to listen, after `close` on the same port as before. */
  async listen(): Promise<void> {
    const server = createServer((request, response) => void this.#serve(request, response));
    server.on("connection", () => this.connections++);
    server.listen(this.#port, "127.0.0.1");
    await once(server, "listening");
    this.#server = server;
    this.#port = (server.address() as AddressInfo).port;
  }

  /** Stops listening and breaks every connection. */
  async close(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request) chunks.push(chunk as Buffer);
    } catch {
      return;
    }
    const received: ReceivedRequest = {
      method: request.method ?? "",
      url: request.url ?? "",
      headers: request.headers,
      rawHeaders: request.rawHeaders,
      body: Buffer.concat(chunks),
    };
    this.requests.push(received);
    const answer = this.#queued.shift() ?? this.answer;
    const arrived = this.#arrived;
    this.#arrived = [];
    for (const resolve of arrived) resolve();
    await reply(answer, received, response);
  }
}

async function reply(answer: Answer, request: ReceivedRequest, response: ServerResponse): Promise<void> {
  if (typeof answer === "function") {
    answer(request, response);
    return;
  }
  if (answer === "drop") {
    response.socket?.destroy();
    return;
  }
  await answer.after;
  response.writeHead(answer.status, answer.headers);
  response.end(answer.body);
}

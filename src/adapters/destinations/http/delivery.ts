import { Client, type Dispatcher } from "undici";
import { PublishError } from "../../../model/errors.ts";
import type { Headers } from "../../../model/rows.ts";
import { encodedHeaderName, encodedHeaderValue, HTTP_HEADER_NAME, httpHeaderOctets } from "../../../model/text.ts";
import type { Destination, OutboundMessage } from "../../../ports/destination.ts";
import type { Metrics } from "../../../ports/metrics.ts";
import type { SecretMasker } from "../../../ports/runtime.ts";
import type { Clock } from "../../../time/clock.ts";
import type { InFlight, InFlightMember } from "../pendingPublish.ts";
import { httpError, publishErrorOf, retryAfterMs, statusCode } from "./errors.ts";
import { type HttpDestinationConfig, requestUrl } from "./kind.ts";
import type { RequestHeader, Signer } from "./signing.ts";

/** What requests authenticate with. */
export interface Credentials {
  /** The credential to send now; undefined when one must be fetched first. */
  current(): RequestHeader | undefined;
  /** Fetches a credential; callers share one request. Rejects with PublishError `token`. */
  fetch(): Promise<RequestHeader>;
  /** Call it on a 401 to this credential. Returns whether another one can be fetched. */
  refused(credential: RequestHeader): boolean;
  close(): Promise<void>;
}

export interface Channel {
  readonly pool: Dispatcher;
  readonly method: HttpDestinationConfig["method"];
  readonly origin: string;
  readonly baseUrl: string;
  /** Path and query of a request for messages without a path of their own. */
  readonly target: string;
  /** The request in words, for errors: `POST https://example.com/hook`. */
  readonly name: string;
  /** Besides 2xx. */
  readonly successStatuses: ReadonlySet<number>;
  readonly deadStatuses: ReadonlySet<number>;
  /** Whether a 207 answer is read: it has a status for each message of a batch. */
  readonly readsResults: boolean;
  readonly signer: Signer | null;
  readonly timeoutMs: number;
  readonly maxErrorBodyBytes: number;
  readonly credentials: Credentials | null;
  readonly inFlight: InFlight;
  readonly clock: Clock;
  readonly metrics: Pick<Metrics, "httpPublishResponse">;
  readonly secrets: Pick<SecretMasker, "mask">;
}

/**
 * An HTTP destination (spec, "HTTP destination"): POSTs the message as body; a 2xx status completes the delivery. A
 * publish that fails after its request was sent is not repeated here (except for a refused token, and by a
 * `keptConnection`): the row's own retry does that, with backoff.
 */
export class HttpDestination implements Destination {
  readonly #channel: Channel;
  readonly #batches: Batching | undefined;
  #closed: Promise<void> | undefined;

  /** @param batches collects messages into requests; undefined sends each in its own */
  constructor(channel: Channel, batches: Batching | undefined) {
    this.#channel = channel;
    this.#batches = batches;
  }

  async publish(message: OutboundMessage, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#closed !== undefined) throw httpError("closed", `${this.#channel.name}: the destination is closed`);
    if (this.#batches === undefined) await HttpPublish.run(this.#channel, message, signal);
    else await this.#batches.publish(message, signal);
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    const { pool, credentials, inFlight, name } = this.#channel;
    this.#batches?.flush();
    inFlight.failAll(httpError("closed", `${name}: the destination was closed`));
    await Promise.all([pool.destroy(), credentials?.close()]);
  }
}

type Batching = Pick<Destination, "publish"> & { flush(): void };

/** Bytes of a body that are read so that its connection can be reused; beyond that a new connection is cheaper. */
const MAX_DRAINED_BYTES = 131_072;

/** Of a 207 answer. */
const MAX_RESULT_BYTES = 4_194_304;

/** A receiver that reports its progress ten times a second does so for 100 s. */
const MAX_INFORMATIONAL = 1000;

/** Why the exchange is cut off; never reported. */
const CUT_OFF = new Error("the exchange was cut off");

/**
 * One publish: the exchange with the receiver, and a second one after a refused token. It is the handler of its own
 * request, called by the HTTP client.
 *
 * The publish ends with its answer. When the time is over, or the body is larger than is read, the status decides if it
 * has arrived, and the connection is given up.
 */
export class HttpPublish implements Dispatcher.DispatchHandler, InFlightMember {
  readonly deadline: number;
  readonly signal: AbortSignal;
  readonly #channel: Channel;
  readonly #message: OutboundMessage;
  readonly #resolve: (results: string | undefined) => void;
  readonly #reject: (error: unknown) => void;
  #settled = false;
  #phase: "waiting for a token" | "waiting for a connection" | "waiting for the answer" = "waiting for a connection";
  #credential: RequestHeader | null = null;
  #renewed = false;
  #exchange: Exchange | null = null;

  private constructor(
    channel: Channel,
    message: OutboundMessage,
    signal: AbortSignal,
    resolve: (results: string | undefined) => void,
    reject: (error: unknown) => void,
  ) {
    this.#channel = channel;
    this.#message = message;
    this.signal = signal;
    this.#resolve = resolve;
    this.#reject = reject;
    this.deadline = performance.now() + (channel.timeoutMs || Number.POSITIVE_INFINITY);
  }

  /** See `Destination.publish`. @returns the body of a 207 answer if the channel reads them */
  static run(channel: Channel, message: OutboundMessage, signal: AbortSignal): Promise<string | undefined> {
    return new Promise((resolve, reject) => {
      const publish = new HttpPublish(channel, message, signal, resolve, reject);
      channel.inFlight.add(publish);
      publish.#start();
    });
  }

  expire(): void {
    const { name, timeoutMs } = this.#channel;
    this.fail(httpError("timeout", `${name} took longer than ${timeoutMs} ms, ${this.#phase}`));
  }

  /** Ends the publish early, and its exchange: a status that has arrived says more than `error`. */
  fail(error: unknown): void {
    const exchange = this.#exchange;
    if (this.#isDelivered()) this.#end(undefined);
    else this.#end(this.#isRefused() && !this.signal.aborted ? this.#statusError() : error);
    exchange?.controller.abort(CUT_OFF);
  }

  #start(): void {
    const { credentials } = this.#channel;
    const credential = credentials === null ? null : credentials.current();
    if (credential !== undefined) {
      this.#send(credential);
      return;
    }
    this.#phase = "waiting for a token";
    credentials?.fetch().then(
      (fetched) => this.#send(fetched),
      (error) => this.#end(error),
    );
  }

  #send(credential: RequestHeader | null): void {
    // A waiter that timed out leaves; the token request continues for the others.
    if (this.#settled) return;
    this.#credential = credential;
    this.#phase = "waiting for a connection";
    try {
      const { pool, method, origin, baseUrl, target, signer } = this.#channel;
      const signed = signer?.(this.#message) ?? [];
      const own = credential === null ? signed : [...signed, credential];
      const { headers, body, address } = this.#message;
      const path = address === null ? target : targetOf(requestUrl(baseUrl, address));
      pool.dispatch({ method, origin, path, headers: requestHeaders(headers, own), body }, this);
    } catch (error) {
      this.#end(error);
    }
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    if (this.#settled) {
      // It timed out while waiting for a connection: it must not be sent.
      controller.abort(CUT_OFF);
      return;
    }
    this.#phase = "waiting for the answer";
    this.#exchange = {
      controller,
      status: 0,
      tokenRefused: false,
      retryAfter: undefined,
      body: [],
      bodyBytes: 0,
      informational: 0,
      complete: false,
    };
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: Readonly<Record<string, string | string[] | undefined>>,
  ): void {
    const exchange = this.#exchange;
    if (exchange === null) return;
    if (status < 200) {
      // They precede the final answer. A flood of them would take all of a processor until the timeout.
      exchange.informational += 1;
      const reason = `was answered more than ${MAX_INFORMATIONAL} times with 1xx, and not with a final status`;
      if (exchange.informational > MAX_INFORMATIONAL)
        this.fail(httpError("bad_response", `${this.#channel.name} ${reason}`));
      return;
    }
    exchange.status = status;
    this.#channel.metrics.httpPublishResponse(statusClass(status));
    if (isSuccess(status, this.#channel)) return;
    exchange.retryAfter = headers["retry-after"];
    if (status !== 401 || !this.#mayRenew()) return;
    exchange.tokenRefused = true;
    controller.abort(CUT_OFF);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    const exchange = this.#exchange;
    if (exchange === null) return;
    const { maxErrorBodyBytes, name } = this.#channel;
    // Of an error's body the part that is kept, and one byte that shows whether there is more.
    const missing = (maxErrorBodyBytes === 0 ? 0 : maxErrorBodyBytes + 1) - exchange.bodyBytes;
    exchange.bodyBytes += chunk.length;
    if (this.#hasResults()) {
      exchange.body.push(chunk);
      if (exchange.bodyBytes > MAX_RESULT_BYTES)
        this.fail(httpError("bad_response", `${name} was answered 207 with more than ${MAX_RESULT_BYTES} bytes`));
      return;
    }
    if (this.#isRefused() && missing > 0) exchange.body.push(chunk.subarray(0, missing));
    if (exchange.bodyBytes > MAX_DRAINED_BYTES) controller.abort(CUT_OFF);
  }

  onResponseEnd(): void {
    if (this.#exchange !== null) this.#exchange.complete = true;
    this.#exchangeEnded(undefined);
  }

  /** Without a controller when no connection was made. */
  onResponseError(_controller: Dispatcher.DispatchController | undefined, error: Error): void {
    this.#exchangeEnded(error);
  }

  #exchangeEnded(error: Error | undefined): void {
    if (this.#settled) return;
    const exchange = this.#exchange;
    if (exchange?.tokenRefused === true) {
      // Once: a receiver that refuses the second token too refuses the message.
      this.#renewed = true;
      this.#exchange = null;
      this.#start();
    } else if (this.#isDelivered()) this.#end(undefined);
    else if (this.#isRefused()) this.#end(this.#statusError());
    else if (error !== undefined) this.#end(publishErrorOf(`${this.#channel.name}, ${this.#phase},`, error));
    else this.#end(undefined, Buffer.concat(exchange?.body ?? []).toString("utf8"));
  }

  /** Whether the status completes the publish, whatever the body is. */
  #isDelivered(): boolean {
    return isSuccess(this.#status, this.#channel) && !this.#hasResults();
  }

  /** Whether the statuses of the messages are in the body. */
  #hasResults(): boolean {
    return this.#channel.readsResults && this.#status === 207;
  }

  /** The final status; 0 until it has arrived. */
  get #status(): number {
    return this.#exchange?.status ?? 0;
  }

  #isRefused(): boolean {
    return this.#status > 0 && !isSuccess(this.#status, this.#channel);
  }

  /** Whether a new token can be fetched: this one may have been revoked. */
  #mayRenew(): boolean {
    if (this.#renewed || this.#credential === null) return false;
    return this.#channel.credentials?.refused(this.#credential) ?? false;
  }

  #statusError(): PublishError {
    const { name, deadStatuses, clock } = this.#channel;
    const status = this.#status;
    const body = this.#errorBody();
    const answer = `${name} was answered ${status}${status < 400 ? ", a redirect, which is not followed: set baseUrl to its Location" : ""}`;
    return httpError(statusCode(status), body === "" ? answer : `${answer}: ${body}`, {
      status: String(status),
      isPermanent: deadStatuses.has(status),
      retryAfterMs: retryAfterMs(status, this.#exchange?.retryAfter, clock.now()),
    });
  }

  /** The start of the body without secrets, which receivers echo. Masked before it is cut: half a secret would pass. */
  #errorBody(): string {
    const { body = [], complete = true } = this.#exchange ?? {};
    const { maxErrorBodyBytes, secrets } = this.#channel;
    if (maxErrorBodyBytes === 0) return "";
    const read = Buffer.concat(body);
    const isWhole = complete && read.length <= maxErrorBodyBytes;
    const text = secrets.mask(decoded(read.subarray(0, maxErrorBodyBytes)), !isWhole);
    const bytes = Buffer.from(text, "utf8");
    if (isWhole && bytes.length <= maxErrorBodyBytes) return text;
    return `${decoded(bytes.subarray(0, maxErrorBodyBytes))}…`;
  }

  #end(error: unknown, results?: string): void {
    if (this.#settled) return;
    this.#settled = true;
    if (error === undefined) this.#resolve(results);
    else {
      if (this.#status === 0 && error instanceof PublishError) this.#channel.metrics.httpPublishResponse("error");
      this.#reject(error);
    }
    this.#exchange = null;
    this.#channel.inFlight.delete(this);
  }
}

/**
 * The headers of one request, as a flat list of names and values. A name or value that HTTP cannot carry is encoded:
 * dropping it would hide what the sender sent, sending it would let a row inject headers, and failing would keep the
 * message for ever.
 *
 * @param own set by the destination; they win over headers of the message with those names
 */
export function requestHeaders(headers: Headers, own: readonly RequestHeader[]): string[] {
  const list: string[] = [];
  for (const name of Object.keys(headers)) {
    const lowerCase = name.toLowerCase();
    if (OF_THE_CONNECTION.has(lowerCase) || own.some((each) => each.name === lowerCase)) continue;
    const sentName = HTTP_HEADER_NAME.test(name) ? name : encodedHeaderName(name, HTTP_HEADER_NAME);
    if (sentName !== null) list.push(sentName, httpHeaderOctets(encodedHeaderValue(lowerCase, headers[name] ?? "")));
  }
  for (const { name, value } of own) if (value !== null) list.push(name, value);
  return list;
}

/**
 * Headers that belong to one connection or frame one message (RFC 9110, section 7.6.1): the client sets its own, and
 * the body is never compressed. Values from a row would break the exchange, so they are dropped.
 */
const OF_THE_CONNECTION: ReadonlySet<string> = new Set([
  "connection",
  "content-encoding",
  "content-length",
  "expect",
  "host",
  "http2-settings",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** One request and its answer so far. */
interface Exchange {
  readonly controller: Dispatcher.DispatchController;
  /** 0 before the final status. */
  status: number;
  informational: number;
  /** Answered 401; the publish is repeated with another token when this exchange has ended. */
  tokenRefused: boolean;
  retryAfter: string | string[] | undefined;
  readonly body: Buffer[];
  bodyBytes: number;
  /** The body has ended properly. */
  complete: boolean;
}

/** The bytes as text; the streaming decoder drops a character that the end cuts. */
function decoded(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes, { stream: true });
}

export function targetOf({ pathname, search }: URL): string {
  return pathname + search;
}

/** Whether a final status completes a delivery. */
export function isSuccess(status: number, { successStatuses }: Channel): boolean {
  return (status >= 200 && status < 300) || successStatuses.has(status);
}

function statusClass(status: number): "2xx" | "3xx" | "4xx" | "5xx" {
  if (status < 300) return "2xx";
  if (status < 400) return "3xx";
  return status < 500 ? "4xx" : "5xx";
}

/**
 * A connection that is kept, and made anew after its end. A request is repeated on the new one if nothing of an answer
 * came on a connection that had carried another before: most likely the receiver was ending it as idle.
 */
export function keptConnection(origin: URL, options: Client.Options): Client {
  const client = new Client(origin, options);
  const dispatch: Client["dispatch"] = client.dispatch.bind(client);
  let isUsed = false;
  client.on("disconnect", () => {
    isUsed = false;
  });
  client.dispatch = (request, handler) => {
    let isRepeatable: boolean | undefined;
    // The pool has converted the handler to the client's older form.
    const { onHeaders, onData, onComplete } = handler as Required<typeof handler>;
    return dispatch(request, {
      onConnect: (abort) => {
        isRepeatable = isUsed;
        isUsed = true;
        handler.onConnect?.(abort);
      },
      onResponseStarted: () => {
        isRepeatable = false;
      },
      onHeaders: onHeaders.bind(handler),
      onData: onData.bind(handler),
      onComplete: onComplete.bind(handler),
      onError: (error) => {
        const isLost = (isRepeatable ?? isUsed) && publishErrorOf("", error).code === "connection_lost";
        if (!isLost) handler.onError?.(error);
        else if (isRepeatable) client.dispatch(request, handler);
        // Not sent: the client looks for the end of an idle connection first, and a reset fails what waits meanwhile.
        else queueMicrotask(() => client.dispatch(request, handler));
      },
    });
  };
  return client;
}

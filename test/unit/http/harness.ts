import { connect, type Socket } from "node:net";
import type { HealthReport } from "../../../src/core/health.ts";
import { httpPlan } from "../../../src/core/receipt/attributes.ts";
import { ReceiptBatcher } from "../../../src/core/receipt/receiptBatcher.ts";
import { createReceiver, type ReceiverOptions } from "../../../src/core/receipt/receive.ts";
import { BodyBudget, type BodyLimits } from "../../../src/http/exchange.ts";
import { type HttpSource, inboxRoutes } from "../../../src/http/inbox.ts";
import { processRoutes } from "../../../src/http/process/routes.ts";
import type { HttpRoute } from "../../../src/http/routes.ts";
import { createApps, HttpServer, type HttpServerOptions } from "../../../src/http/server.ts";
import { MemoryInbox } from "../../support/memoryInbox.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../support/recorders.ts";

export interface HarnessOptions {
  readonly maxBodyBytes?: number;
  readonly credentialHeaders?: readonly string[];
  readonly drainMs?: number;
  /** Default 0: kept connections hold up no test's end. */
  readonly idleGraceMs?: number;
  readonly route?: Partial<HttpSource["settings"]>;
  readonly filter?: ReceiverOptions["settings"]["filter"];
  /** Of a source whose provider has the attributes in places of its own. */
  readonly attributes?: ReceiverOptions["attributes"];
  readonly stage?: ReceiverOptions["stage"];
  /** Of further roles. */
  readonly routes?: readonly HttpRoute[];
  readonly onAnswer?: HttpSource["onAnswer"];
  readonly isReady?: boolean;
  readonly management?: boolean;
  readonly maxBufferedBodyBytes?: number;
  readonly server?: Partial<HttpServerOptions>;
}

/** A cap with a budget that is never used up. */
export function bodyLimits(maxBytes: number): BodyLimits {
  return { maxBytes, budget: new BodyBudget(Number.POSITIVE_INFINITY, new ManualClock()) };
}

/** The HTTP side of the service on ports of 127.0.0.1, over an inbox in memory: one source `orders` at `/inbox/orders`. */
export async function startHttp(options: HarnessOptions = {}) {
  const store = new MemoryInbox();
  const clock = new ManualClock();
  const { log, lines } = recordingLog();
  const { metrics, calls } = recordingMetrics();
  const batcher = new ReceiptBatcher(store, log);
  const paths = { idempotencyKeyPath: ["$.id"], eventTypePath: ["$.type"], aggregateIdPath: ["$.order"] };
  const receiver = createReceiver({
    source: "orders",
    settings: { consumption: "push", filter: options.filter, cloudEvents: options.route?.cloudEvents },
    attributes: options.attributes ?? httpPlan(paths),
    stage: options.stage,
    batcher,
    clock,
    metrics,
    log,
  });
  const maxBodyBytes = options.maxBodyBytes ?? 1_048_576;
  const bodies = new BodyBudget(options.maxBufferedBodyBytes ?? 67_108_864, clock);
  const inbox = inboxRoutes({
    inbox: { basePath: "/inbox", maxBodyBytes, credentialHeaders: options.credentialHeaders ?? [] },
    sources: [
      {
        settings: {
          ...paths,
          consumption: "push",
          path: "/orders",
          batch: { atomic: false, maxItems: 10_000 },
          ...options.route,
        },
        receiver,
        onAnswer: options.onAnswer,
      },
    ],
    budget: bodies,
    clock,
    metrics,
  });
  const { isReady = true } = options;
  const body: HealthReport["body"] = {
    status: isReady ? "healthy" : "unhealthy",
    components: { database: { status: isReady ? "up" : "down" } },
  };
  const routes = processRoutes([...inbox, ...(options.routes ?? [])], {
    health: { readiness: async () => ({ ready: isReady, body }) },
    metrics: async () => ({ text: "# TYPE svc_info gauge\nsvc_info 1\n" }),
    document: { version: "1.2.3", server: { httpPort: 8080 }, maxBodyBytes },
  });
  const apps = createApps({
    routes,
    hasManagementPort: options.management ?? false,
    maxBodyBytes,
    log,
  });
  const server = (listener: typeof apps.data) =>
    new HttpServer({
      name: "http",
      port: 0,
      portKey: "server.httpPort",
      host: "127.0.0.1",
      listener,
      log,
      drainMs: options.drainMs,
      idleGraceMs: options.idleGraceMs ?? 0,
      ...options.server,
    });
  const data = server(apps.data);
  const management = apps.management && server(apps.management);
  await data.start();
  await management?.start();

  const post = (body: string | Uint8Array, headers: Record<string, string> = {}, path = "/inbox/orders") =>
    fetch(`http://127.0.0.1:${data.port}${path}`, { method: "POST", body, headers });
  const stop = async () => {
    await Promise.all([data.stop(new AbortController().signal), management?.stop(new AbortController().signal)]);
    await batcher.close();
  };
  return { store, bodies, clock, lines, calls, data, management, post, stop, [Symbol.asyncDispose]: stop };
}

/** Status and body of an answer. */
export async function seen(response: Response): Promise<{ readonly status: number; readonly body: string }> {
  return { status: response.status, body: await response.text() };
}

/** A connection that sends and reads plain text, for what an HTTP client would not do. */
export class RawClient {
  readonly #socket: Socket;
  received = "";
  /** Resolves when the connection has ended, however it did. */
  readonly closed: Promise<void>;
  readonly #waiting = new Set<() => void>();

  constructor(port: number) {
    this.#socket = connect(port, "127.0.0.1");
    this.#socket.setEncoding("latin1");
    this.#socket.on("data", (text: string) => {
      this.received += text;
      for (const check of this.#waiting) check();
    });
    // A reset is one of the ends a connection may come to.
    this.#socket.on("error", () => {});
    this.closed = new Promise((resolve) => {
      this.#socket.on("close", () => resolve());
    });
  }

  send(text: string | Uint8Array): void {
    this.#socket.write(text);
  }

  /** Sends, and ends this side of the connection only. */
  end(text: string | Uint8Array): void {
    this.#socket.end(text);
  }

  /** Waits until the received text holds `text`; fails when the connection ends without it. */
  async until(text: string): Promise<string> {
    await new Promise<void>((resolve, reject) => {
      const check = (): void => {
        if (!this.received.includes(text)) return;
        this.#waiting.delete(check);
        resolve();
      };
      this.#waiting.add(check);
      check();
      void this.closed.then(() => {
        if (this.#waiting.delete(check)) reject(new Error(`connection ended after ${JSON.stringify(this.received)}`));
      });
    });
    return this.received;
  }

  destroy(): void {
    this.#socket.destroy();
  }

  /** Ends the connection with a reset, as the death of a client does. */
  reset(): void {
    this.#socket.resetAndDestroy();
  }

  [Symbol.dispose](): void {
    this.destroy();
  }
}

/** The head of a POST request up to and with the blank line. */
export function postHead(headers: readonly string[], path = "/inbox/orders"): string {
  return [`POST ${path} HTTP/1.1`, "Host: localhost", ...headers, "", ""].join("\r\n");
}

import { Pull } from "../../../../src/core/delivery/pull.ts";
import { createRedactor, KnownSecrets } from "../../../../src/core/redaction/redact.ts";
import { type PullOptions, pullRoutes } from "../../../../src/http/pull/routes.ts";
import { PullWaiters } from "../../../../src/http/pull/waiters.ts";
import { createApps, HttpServer } from "../../../../src/http/server.ts";
import type { ClaimToken, MessageId } from "../../../../src/model/rows.ts";
import type {
  PullClaim,
  PullClaimRequest,
  PulledRow,
  PullRejectionOptions,
  PullStore,
} from "../../../../src/ports/pullStore.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../../support/recorders.ts";
import { bodyLimits } from "../harness.ts";

/** Claims and closings over a list in memory: no leases, no order. */
export class MemoryPull implements PullStore {
  /** What the next claims give, oldest first. */
  readonly available: PulledRow[] = [];
  /** What the next claim finds dead. */
  dead: MessageId[] = [];
  readonly claims: PullClaimRequest[] = [];
  readonly rejections: PullRejectionOptions[] = [];
  readonly extensions: number[] = [];
  fault: Error | undefined;
  readonly #held = new Map<MessageId, ClaimToken>();

  async claim(request: PullClaimRequest) {
    this.claims.push(request);
    if (this.fault !== undefined) throw this.fault;
    const dead = this.dead.splice(0);
    const rows = dead.length > 0 ? [] : this.available.splice(0, request.limit);
    for (const { id } of rows) this.#held.set(id, request.token);
    return { token: request.token, rows, dead };
  }

  async acknowledge(claim: PullClaim) {
    return this.#take(claim);
  }

  async reject(claim: PullClaim, options: PullRejectionOptions) {
    this.rejections.push(options);
    const ids = this.#take(claim);
    return options.maxAttempts === 1
      ? { retried: [], dead: ids, released: [] }
      : { retried: ids, dead: [], released: [] };
  }

  async extend(claim: PullClaim, leaseMs: number) {
    this.extensions.push(leaseMs);
    return this.#heldUnder(claim);
  }

  /** Ids under any claim. */
  get held(): readonly MessageId[] {
    return [...this.#held.keys()];
  }

  #heldUnder({ token, ids }: PullClaim): readonly MessageId[] {
    if (this.fault !== undefined) throw this.fault;
    return this.held.filter((id) => this.#held.get(id) === token && (ids === null || ids.includes(id)));
  }

  #take(claim: PullClaim): readonly MessageId[] {
    const ids = this.#heldUnder(claim);
    for (const id of ids) this.#held.delete(id);
    return ids;
  }
}

let made = 0;

export function pulledRow(overrides: Partial<PulledRow> = {}): PulledRow {
  made += 1;
  return {
    id: uuid(made) as MessageId,
    aggregateId: null,
    eventType: "created",
    idempotencyKey: `key-${made}`,
    correlationId: null,
    attempt: 1,
    createdAt: new Date(Date.UTC(2024, 0, 1)),
    headers: {},
    tooLarge: null,
    payload: "{}",
    ...overrides,
  };
}

/** A UUID that tells its number. */
export function uuid(n: number): string {
  return `00000000-0000-7000-8000-${n.toString(16).padStart(12, "0")}`;
}

export interface PullHarnessOptions {
  readonly auth?: PullOptions["settings"]["auth"];
  readonly maxBodyBytes?: number;
  readonly maxAttempts?: number;
  readonly sources?: readonly string[];
}

/** The pull routes on a port of 127.0.0.1, over a store in memory: `/pull/orders/...` unless other sources are named. */
export async function startPull(options: PullHarnessOptions = {}) {
  const store = new MemoryPull();
  const clock = new ManualClock();
  const { log, lines } = recordingLog();
  const { metrics, calls } = recordingMetrics();
  const { maxBodyBytes = 10_000, sources = ["orders"] } = options;
  let tokens = 0;
  const pull = new Pull({
    store,
    maxAttempts: options.maxAttempts ?? 5,
    newToken: () => {
      tokens += 1;
      return `11111111-0000-4000-8000-${String(tokens).padStart(12, "0")}` as ClaimToken;
    },
    redact: createRedactor(new KnownSecrets(["s3cret-value"]), 100),
    metrics,
    clock,
    log,
  });
  const waiters = new PullWaiters({ sources, pull });
  const settings = { basePath: "/pull", leaseMs: 30_000, auth: options.auth };
  const routes = pullRoutes({ settings, limits: bodyLimits(maxBodyBytes), sources, pull, waiters, clock, log });
  const apps = createApps({ routes, hasManagementPort: false, maxBodyBytes, log });
  const data = new HttpServer({
    name: "http",
    port: 0,
    portKey: "server.httpPort",
    host: "127.0.0.1",
    listener(req, res) {
      res.once("close", () => {
        ended += 1;
      });
      apps.data(req, res);
    },
    idleGraceMs: 0,
    log,
  });
  let ended = 0;
  await data.start();
  const post = (operation: string, body: string | Uint8Array | object = "", headers: Record<string, string> = {}) =>
    fetch(`http://127.0.0.1:${data.port}/pull/${operation.includes("/") ? operation : `orders/${operation}`}`, {
      method: "POST",
      body: typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body),
      headers,
    });
  const stop = async () => {
    const cutoff = new AbortController().signal;
    await Promise.all([data.stop(cutoff), waiters.stop(cutoff)]);
  };
  return {
    store,
    clock,
    lines,
    calls,
    data,
    waiters,
    post,
    stop,
    /** Requests that were answered, or whose client has gone. */
    ended: () => ended,
    [Symbol.asyncDispose]: stop,
  };
}

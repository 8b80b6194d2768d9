import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { InboundAuth } from "../../adapters/sources/http/schema.ts";
import type { ClaimedRows, Pull, PullResult } from "../../core/delivery/pull.ts";
import { StoreError } from "../../model/errors.ts";
import { OPERATIONS, type OperationId } from "../../model/routes.ts";
import type { PullClaim, PulledRow } from "../../ports/pullStore.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { accessOf, createVerifier } from "../credentials.ts";
import { admit, type BodyLimits, ERRORS, JSON_TYPE, send, sendError, sendJson } from "../exchange.ts";
import { describePull } from "../openapi/sources.ts";
import { type Route, type RouteHandler, route, sourceIds } from "../routes.ts";
import { InvalidRequest, readAck, readClaim, readExtend, readNack } from "./requests.ts";
import type { PullWaiters } from "./waiters.ts";

export interface PullRouteOptions {
  /** `inbox.pull` */
  readonly settings: {
    readonly basePath: string;
    /** Lease of a request that names none, in ms. */
    readonly leaseMs: number;
    readonly auth?: InboundAuth | undefined;
  };
  readonly limits: BodyLimits;
  /** Names of the sources whose rows are pulled. */
  readonly sources: readonly string[];
  readonly pull: Pull;
  readonly waiters: PullWaiters;
  readonly clock: Pick<Clock, "now">;
  readonly log: Log;
}

/**
 * The pull routes of each source (design, "Pull rows"; docs/pull.md). The source's name is percent-encoded in the path.
 */
export function pullRoutes(options: PullRouteOptions): readonly Route[] {
  const { settings, sources } = options;
  const access = accessOf(settings.auth, "pull", "the pull routes");
  const handler = createHandlers(options);
  const ids = sourceIds(sources);
  return sources.flatMap((source) => {
    const describe = describePull(source, settings.leaseMs);
    const { claim, ack, nack, extend } = operations(source, options);
    const sourceId = ids.get(source) ?? source;
    const at = (id: keyof typeof describe, operation: PullOperation): Route => {
      const path = pathOf(id, settings.basePath, source);
      return route(id, { access, ...describe[id] }, handler(source, operation), { path, sourceId });
    };
    return [at("pull_claim", claim), at("pull_ack", ack), at("pull_nack", nack), at("pull_extend", extend)];
  });
}

function pathOf(id: OperationId, basePath: string, source: string): string {
  const path = OPERATIONS[id].path.replace("<inbox.pull.basePath>", () => basePath);
  return path.replace("{source}", () => encodeURIComponent(source));
}

/** Answers a request that was admitted. @param isAdmitted whether it would be now. @throws InvalidRequest, StoreError */
type PullOperation = (body: Buffer, res: ServerResponse, isAdmitted: () => boolean) => Promise<void>;

/** Makes handlers that check body and credentials before the operation, and answer its errors. */
function createHandlers({ settings, limits, clock, log }: PullRouteOptions) {
  const verifier = settings.auth === undefined ? null : createVerifier(settings.auth, clock, "request");
  return (source: string, operation: PullOperation): RouteHandler =>
    async function handle(req, res) {
      const body = await admit(req, res, { limits, verifier });
      if (body === null) return;
      try {
        await operation(body, res, () => (verifier?.refusal(req, body) ?? null) === null);
      } catch (error) {
        if (error instanceof InvalidRequest) return sendError(res, 400, `Invalid request: ${error.message}`);
        if (!(error instanceof StoreError)) throw error;
        log.error({ source, code: error.code, reason: error.message }, "a pull request failed");
        sendError(res, 500, ERRORS.storageFailed);
      }
    };
}

function operations(
  source: string,
  { settings, pull, waiters }: PullRouteOptions,
): Readonly<Record<"claim" | "ack" | "nack" | "extend", PullOperation>> {
  return {
    async claim(body, res, isAdmitted) {
      const request = { ...readClaim(body, settings.leaseMs), isAdmitted };
      const gone = new AbortController();
      const forget = whenGone(res.req.socket, () => gone.abort());
      const claimed = await waiters.claim(source, request, gone.signal);
      forget();
      send(res, 200, JSON_TYPE, claimAnswer(claimed, request.leaseMs));
    },

    async ack(body, res) {
      const { token, ids } = readAck(body);
      const outcome = await pull.acknowledge({ source, token, ids });
      waiters.wake(source);
      answer(res, ids, outcome, { acknowledged: outcome.result });
    },

    async nack(body, res) {
      const { token, ids, delayMs, error } = readNack(body);
      const outcome = await pull.reject({ source, token, ids }, delayMs, error);
      waiters.wake(source);
      answer(res, ids, outcome, outcome.result);
    },

    async extend(body, res) {
      const { token, ids, leaseMs } = readExtend(body, settings.leaseMs);
      const outcome = await pull.extend({ source, token, ids }, leaseMs);
      answer(res, ids, outcome, { extended: outcome.result });
    },
  };
}

/** 200 with the lists; 409 with the same lists when the client holds none of what it names. */
function answer(
  res: ServerResponse,
  ids: PullClaim["ids"],
  { lost, held }: Pick<PullResult<unknown>, "lost" | "held">,
  lists: object,
): void {
  if (held) sendJson(res, 200, { ...lists, lost });
  else sendJson(res, 409, { error: ids === null ? NOTHING_HELD : NONE_HELD, ...lists, lost });
}

const WHY =
  "they were acknowledged or given back before, or the lease ran out and another claim took them over, or they became dead";
const NOTHING_HELD = `No message is held under this claim token: ${WHY}`;
const NONE_HELD = `None of these messages is held under this claim token: ${WHY}`;

/**
 * The body of a claim's answer. It is assembled as text: parsed and printed again, a payload would lose what JavaScript
 * cannot hold (`12345678901234567890`, `1.0`, the order and repetition of keys).
 *
 * @param claimed null when no message is available
 * @param leaseMs the lease of the claim
 */
function claimAnswer(claimed: ClaimedRows | null, leaseMs: number): string {
  const token = JSON.stringify(claimed?.token ?? null);
  const messages = (claimed?.rows ?? []).map(message).join(",");
  return `{"claimToken":${token},"leaseMs":${leaseMs},"messages":[${messages}]}`;
}

function message(row: PulledRow): string {
  const { id, aggregateId, eventType, idempotencyKey, correlationId, attempt, createdAt, headers } = row;
  const fields = { id, aggregateId, eventType, idempotencyKey, correlationId, attempt, createdAt, headers };
  const open = JSON.stringify(fields).slice(0, -1);
  return `${open},"payload":${jsonOf(row.payload)}}`;
}

/** The stored text when it is a JSON document, else a JSON string that holds it. */
function jsonOf(payload: string): string {
  try {
    JSON.parse(payload);
    return payload;
  } catch {
    return JSON.stringify(payload);
  }
}

const WAITING = new WeakMap<Socket, Set<() => void>>();

/**
 * Calls back once when the client has ended the connection, or its half of it: a client that can send nothing more
 * cannot acknowledge its messages. Not the response's "close": a response queued behind others on its connection never
 * emits it.
 *
 * @returns cancels the callback
 */
function whenGone(socket: Socket, callback: () => void): () => void {
  let waiting = WAITING.get(socket);
  if (waiting === undefined) {
    const all = new Set<() => void>();
    waiting = all;
    WAITING.set(socket, all);
    // One listener for each connection, however many requests wait on it.
    const callAll = (): void => {
      for (const each of all) each();
      all.clear();
    };
    socket.once("end", callAll).once("close", callAll);
  }
  if (socket.destroyed || socket.readableEnded) callback();
  else waiting.add(callback);
  return () => waiting.delete(callback);
}

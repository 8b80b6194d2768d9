import type { ServerResponse } from "node:http";
import type { Pull, PullResult } from "../../core/delivery/pull.ts";
import { StoreError } from "../../model/errors.ts";
import type { PullClaim } from "../../ports/pullStore.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { admit } from "../admission.ts";
import type { BodyLimits } from "../body.ts";
import { createVerifier, type InboundAuth } from "../credentials.ts";
import { whenGone } from "../gone.ts";
import type { RouteHandler } from "../inboxRoutes.ts";
import { JSON_TYPE, send, sendError, sendJson } from "../respond.ts";
import { claimAnswer } from "./answers.ts";
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
 * The pull routes `<basePath>/<source>/claim`, `/ack`, `/nack` and `/extend` (design, "Pull rows"; docs/pull.md). A source's name stands
 * percent-encoded in the path.
 *
 * @returns handlers of POST requests by exact path
 * @throws ConfigError when the `auth` is unusable
 */
export function pullRoutes(options: PullRouteOptions): ReadonlyMap<string, RouteHandler> {
  const guard = createGuard(options);
  return new Map(
    options.sources.flatMap((source) =>
      Object.entries(operations(source, options)).map(
        ([name, operation]) =>
          [`${options.settings.basePath}/${encodeURIComponent(source)}/${name}`, guard(source, operation)] as const,
      ),
    ),
  );
}

/** Answers a request that was admitted. @throws InvalidRequest, StoreError */
type Operation = (body: Buffer, res: ServerResponse) => Promise<void>;

/** What every pull request goes through, in this order: body, credentials, operation. */
function createGuard({ settings, limits, clock, log }: PullRouteOptions) {
  const { auth } = settings;
  const verifier = auth === undefined ? null : createVerifier(auth, { path: "inbox.pull.auth", clock });
  return (source: string, operation: Operation): RouteHandler =>
    async function handle(req, res) {
      const body = await admit(req, res, { limits, verifier }, sendError);
      if (body === null) return;
      try {
        await operation(body, res);
      } catch (error) {
        if (error instanceof InvalidRequest) return sendError(res, 400, `Invalid request: ${error.message}`);
        if (!(error instanceof StoreError)) throw error;
        log.error({ source, code: error.code, reason: error.message }, "a pull request failed");
        sendError(res, 500, "Storage failed");
      }
    };
}

function operations(
  source: string,
  { settings, pull, waiters }: PullRouteOptions,
): Readonly<Record<"claim" | "ack" | "nack" | "extend", Operation>> {
  return {
    async claim(body, res) {
      const request = readClaim(body, settings.leaseMs);
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

/** 200 with the lists; 409 with the same lists when the client holds none of what it speaks of. */
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

import type { IncomingMessage, ServerResponse } from "node:http";
import { ReplayInterruptedError } from "../../core/finished/replay.ts";
import { hasFilter, NO_FILTER, parseReplayRequest, type ReplayRequest } from "../../core/finished/requests.ts";
import { StoppingError, StoreError } from "../../model/errors.ts";
import { sendError, sendJson } from "../respond.ts";
import type { Gate } from "./gate.ts";
import { parseJsonBody } from "./jsonBody.ts";

export interface ReplayRouteOptions {
  readonly gate: Gate;
  /**
   * Runs a replay to its end, whoever still waits for it.
   *
   * @throws ReplayInterruptedError; its cause is a StoreError, or a StoppingError when the service stops
   */
  readonly run: (request: ReplayRequest) => Promise<{ readonly moved: number }>;
  /** Names of the configured destinations. */
  readonly destinations: readonly string[];
}

/** `POST /admin/replay` (spec): moves finished outbox rows back to `pending`. A caller that hangs up does not end its replay. */
export function replayRoute({ gate, run, destinations }: ReplayRouteOptions) {
  function parse(body: Buffer): ReplayRequest {
    // A request without a body asks for nothing in particular, which is not to mean everything.
    const request = body.length === 0 ? {} : parseReplayRequest(parseJsonBody(body));
    const { destination } = request;
    if (destination === undefined || destinations.includes(destination)) return request;
    // A misspelt name would replay nothing, and look as if there were nothing to replay.
    const known = destinations.length === 0 ? "there are none" : `there are ${destinations.join(", ")}`;
    throw new Error(
      `"destination" is ${JSON.stringify(destination)}; the name of a destination is expected (${known})`,
    );
  }

  return async function handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const body = await gate(req, res, sendError);
    if (body === null) return;
    let request: ReplayRequest;
    try {
      request = parse(body);
    } catch (error) {
      sendError(res, 400, `Invalid request: ${(error as Error).message}`);
      return;
    }
    if (!hasFilter(request)) {
      sendError(res, 400, NO_FILTER);
      return;
    }
    try {
      const { moved } = await run(request);
      sendJson(res, 200, { moved });
    } catch (error) {
      answerInterruption(res, error);
    }
  };
}

function answerInterruption(res: ServerResponse, error: unknown): void {
  const interruption = error instanceof ReplayInterruptedError ? error : undefined;
  const moved = interruption?.moved;
  if (interruption?.cause instanceof StoppingError) sendJson(res, 503, { error: "Service is shutting down", moved });
  else if (interruption?.cause instanceof StoreError) sendJson(res, 500, { error: "Storage failed", moved });
  else throw error;
}

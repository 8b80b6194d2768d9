import { ReplayInterruptedError } from "../../core/finished/replay.ts";
import { hasFilter, NO_FILTER, parseReplayRequest, type ReplayRequest } from "../../core/finished/requests.ts";
import { sendError, sendJson } from "../respond.ts";
import type { RouteHandler } from "../routes.ts";
import { answerInterruption, type Guard, parsed, parseOptionalBody } from "./requests.ts";

export interface ReplayOptions {
  /**
   * Runs a replay to its end, whether or not its caller still waits for it.
   *
   * @throws ReplayInterruptedError; its cause is a StoreError, or a StoppingError when the service stops
   */
  readonly run: (request: ReplayRequest) => Promise<{ readonly moved: number }>;
  /** Names of the configured destinations. */
  readonly destinations: readonly string[];
}

/**
 * `POST /admin/replay` (spec): moves finished outbox rows back to `pending`. A caller that hangs up does not end its
 * replay.
 */
export function replayHandler(guard: Guard, { run, destinations }: ReplayOptions): RouteHandler {
  function parse(body: Buffer): ReplayRequest {
    const request = parseReplayRequest(parseOptionalBody(body));
    const { destination } = request;
    if (destination === undefined || destinations.includes(destination)) return request;
    // A misspelt name would replay nothing, as if no row matched.
    const known = destinations.length === 0 ? "there are none" : `there are ${destinations.join(", ")}`;
    throw new Error(
      `"destination" is ${JSON.stringify(destination)}; the name of a destination is expected (${known})`,
    );
  }

  return guard(async ({ body }, res) => {
    const request = parsed(res, () => parse(body));
    if (request === undefined) return;
    // A request without a filter must not mean everything.
    if (!hasFilter(request.value)) return sendError(res, 400, NO_FILTER);
    try {
      const { moved } = await run(request.value);
      sendJson(res, 200, { moved });
    } catch (error) {
      if (!(error instanceof ReplayInterruptedError)) throw error;
      answerInterruption(res, error, { moved: error.moved });
    }
  });
}

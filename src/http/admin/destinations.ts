import type { ServerResponse } from "node:http";
import { type DestinationControl, type PauseRequest, parsePauseDuration } from "../../core/destinations/control.ts";
import { callerOf, type Fields, parseBy, parseReason, requireObject, single } from "../../core/finished/requests.ts";
import { ERRORS, sendError } from "../respond.ts";
import type { RouteHandler } from "../routes.ts";
import { answerWith, type Guard, parsed, parseJsonBody, parseOptionalBody } from "./requests.ts";

/** `GET /admin/destinations`: the state of every configured destination. */
export function listDestinationsHandler(guard: Guard, control: DestinationControl): RouteHandler {
  return guard((_request, res) => answerWith(res, async () => ({ destinations: await control.list() })));
}

/**
 * `POST /admin/destinations/{name}/pause`: body `{"reason": "...", "for": "2h", "by": "alice"}`, without `for` until it
 * is resumed.
 */
export function pauseDestinationHandler(guard: Guard, control: DestinationControl): RouteHandler {
  return guard(async ({ body, parameters: { name = "" } }, res) => {
    const request = parsed(res, () => parsePauseRequest(parseJsonBody(body)));
    if (request === undefined || !canChange(name, res, control)) return;
    await answerWith(res, async () => {
      await control.pause(name, request.value, request.value.by);
      return { paused: true };
    });
  });
}

/** `POST /admin/destinations/{name}/resume`: body `{"by": "alice"}`, or none. */
export function resumeDestinationHandler(guard: Guard, control: DestinationControl): RouteHandler {
  return guard(async ({ body, parameters: { name = "" } }, res) => {
    const by = parsed(res, () => callerIn(requireObject(parseOptionalBody(body))));
    if (by === undefined || !canChange(name, res, control)) return;
    await answerWith(res, async () => ({ resumed: await control.resume(name, by.value) }));
  });
}

/** @throws Error whose message is the reason */
function parsePauseRequest(value: unknown): PauseRequest & { readonly by: string } {
  const fields = requireObject(value);
  const reason = single(fields, "reason", parseReason);
  if (reason === undefined) throw new Error('"reason" is missing; a text that says why is expected');
  return { reason, forMs: single(fields, "for", parsePauseDuration), by: callerIn(fields) };
}

function callerIn(fields: Fields): string {
  return callerOf(single(fields, "by", parseBy));
}

/** @returns false when there is no such destination, or no table for its pause; the request has its answer then */
function canChange(name: string, res: ServerResponse, control: DestinationControl): boolean {
  if (!control.isKnown(name)) {
    const known = control.names.length === 0 ? "there are none" : `there are ${control.names.join(", ")}`;
    sendError(res, 404, `There is no destination ${JSON.stringify(name)} (${known})`);
    return false;
  }
  if (!control.canPause) sendError(res, 501, ERRORS.noDestinationTable);
  return control.canPause;
}

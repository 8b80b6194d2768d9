import type { Request, Response } from "express";
import { type DestinationControl, type PauseRequest, parsePauseDuration } from "../../core/destinations/control.ts";
import { callerOf, parseBy, parseReason } from "../../core/finished/requests.ts";
import { errorText, StoreError } from "../../model/errors.ts";
import { sendError, sendJson } from "../respond.ts";
import type { Gate } from "./gate.ts";
import { parseJsonBody } from "./jsonBody.ts";

export interface DestinationRouteOptions {
  readonly gate: Gate;
  readonly control: DestinationControl;
}

/** What pausing and resuming answer where there is nothing to keep a pause in. */
export const NO_DESTINATION_TABLE =
  "The table of the destinations is missing, or closed to the service: the log of its start has the statement that mends it";

/** `GET /admin/destinations`: what is known of every configured destination. */
export function listDestinationsRoute({ gate, control }: DestinationRouteOptions) {
  return async function handle(req: Request, res: Response): Promise<void> {
    if ((await gate(req, res, sendError)) === null) return;
    await answer(res, async () => ({ destinations: await control.list() }));
  };
}

/** `POST /admin/destinations/{name}/pause`: body `{"reason": "...", "for": "2h", "by": "alice"}`, without `for` until it is resumed. */
export function pauseDestinationRoute({ gate, control }: DestinationRouteOptions) {
  return async function handle(req: Request<{ name: string }>, res: Response): Promise<void> {
    const body = await gate(req, res, sendError);
    if (body === null) return;
    const request = parsed(res, () => parsePauseRequest(parseJsonBody(body)));
    if (request === undefined || !canChange(req.params.name, res, control)) return;
    await answer(res, async () => {
      await control.pause(req.params.name, request, request.by);
      return { paused: true };
    });
  };
}

/** `POST /admin/destinations/{name}/resume`: body `{"by": "alice"}`, or none. */
export function resumeDestinationRoute({ gate, control }: DestinationRouteOptions) {
  return async function handle(req: Request<{ name: string }>, res: Response): Promise<void> {
    const body = await gate(req, res, sendError);
    if (body === null) return;
    const by = parsed(res, () => callerIn(body.length === 0 ? {} : fieldsOf(parseJsonBody(body))));
    if (by === undefined || !canChange(req.params.name, res, control)) return;
    await answer(res, async () => ({ resumed: await control.resume(req.params.name, by) }));
  };
}

/**
 * Reads a request from JSON. Unknown fields are ignored, and null counts as absent, as on every admin route.
 *
 * @throws Error whose message is the reason, to stand behind `Invalid request: `
 */
export function parsePauseRequest(value: unknown): PauseRequest & { readonly by: string } {
  const fields = fieldsOf(value);
  const reason = textField(fields, "reason", parseReason);
  if (reason === undefined) throw new Error('"reason" is missing; a text that says why is expected');
  return { reason, forMs: textField(fields, "for", parsePauseDuration), by: callerIn(fields) };
}

function callerIn(fields: Readonly<Record<string, unknown>>): string {
  return callerOf(textField(fields, "by", parseBy));
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new Error(`the body is ${kindOf(value)}; a JSON object is expected`);
}

function textField<T>(
  fields: Readonly<Record<string, unknown>>,
  name: string,
  parse: (text: string) => T,
): T | undefined {
  const value = fields[name];
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "string") throw new Error(`"${name}" is ${kindOf(value)}; a string is expected`);
  try {
    return parse(value);
  } catch (error) {
    throw new Error(`"${name}": ${errorText(error)}`);
  }
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

/** @returns undefined when the request is wrong, and answered */
function parsed<T>(res: Response, parse: () => T): T | undefined {
  try {
    return parse();
  } catch (error) {
    sendError(res, 400, `Invalid request: ${errorText(error)}`);
    return undefined;
  }
}

/** Answers, and says false, where there is no such destination, or nothing to keep its pause in. */
function canChange(name: string, res: Response, control: DestinationControl): boolean {
  if (!control.isKnown(name)) {
    const known = control.names.length === 0 ? "there are none" : `there are ${control.names.join(", ")}`;
    sendError(res, 404, `There is no destination ${JSON.stringify(name)} (${known})`);
    return false;
  }
  if (!control.canPause) sendError(res, 501, NO_DESTINATION_TABLE);
  return control.canPause;
}

async function answer(res: Response, work: () => Promise<object>): Promise<void> {
  try {
    sendJson(res, 200, await work());
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    sendError(res, 500, "Storage failed");
  }
}

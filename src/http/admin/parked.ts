import type { IncomingMessage, ServerResponse } from "node:http";
import { ParkedInterruptedError } from "../../core/finished/parked.ts";
import {
  type ParkedSelection,
  parseLimit,
  parseParkedChange,
  parsePattern,
  parseText,
} from "../../core/finished/requests.ts";
import { errorText, StoppingError, StoreError } from "../../model/errors.ts";
import type { ParkedRow } from "../../ports/parkedStore.ts";
import { sendError, sendJson } from "../respond.ts";
import type { Gate } from "./gate.ts";
import { parseJsonBody } from "./jsonBody.ts";

export interface ParkedRouteOptions {
  readonly list: (selection: ParkedSelection, limit: number) => Promise<readonly ParkedRow[]>;
  /** Run to their end, whoever still waits for it. @throws ParkedInterruptedError; its cause is a StoreError, or a StoppingError when the service stops */
  readonly retry: (selection: ParkedSelection, by: string) => Promise<number>;
  readonly discard: (selection: ParkedSelection, by: string, reason: string) => Promise<number>;
}

type Handler = (req: IncomingMessage, res: ServerResponse) => Promise<void>;

const LISTED_BY_DEFAULT = 50;

/** `GET /admin/parked`, `POST /admin/parked/retry` and `POST /admin/parked/discard`. */
export function parkedRoutes(
  gate: Gate,
  options: ParkedRouteOptions,
): Readonly<Record<"list" | "retry" | "discard", Handler>> {
  const changing =
    (asksReason: boolean, change: ParkedRouteOptions["discard"]): Handler =>
    async (req, res) => {
      const body = await gate(req, res, sendError);
      if (body === null) return;
      const request = read(res, () => parseParkedChange(body.length === 0 ? {} : parseJsonBody(body), asksReason));
      if (request === undefined) return;
      try {
        sendJson(res, 200, { changed: await change(request.selection, request.by, request.reason) });
      } catch (error) {
        answerInterruption(res, error);
      }
    };
  return {
    async list(req, res) {
      if ((await gate(req, res, sendError)) === null) return;
      const query = read(res, () => parseQuery(req.url ?? ""));
      if (query === undefined) return;
      try {
        sendJson(res, 200, { rows: (await options.list(query.selection, query.limit)).map(parkedRowShown) });
      } catch (error) {
        if (!(error instanceof StoreError)) throw error;
        sendError(res, 500, "Storage failed");
      }
    },
    retry: changing(false, options.retry),
    discard: changing(true, options.discard),
  };
}

/** What people and programs see of a parked row. */
export function parkedRowShown({ attempt, parkedAt, ...row }: ParkedRow): object {
  return { ...row, attempts: attempt, parkedAt: parkedAt?.toISOString() ?? null };
}

function read<T>(res: ServerResponse, parse: () => T): T | undefined {
  try {
    return parse();
  } catch (error) {
    sendError(res, 400, `Invalid request: ${errorText(error)}`);
    return undefined;
  }
}

function parseQuery(url: string): { readonly selection: ParkedSelection; readonly limit: number } {
  const query = new URLSearchParams(url.split("?", 2)[1] ?? "");
  const parameter = <T>(name: string, parse: (text: string) => T): T | undefined => {
    const text = query.get(name);
    try {
      return text === null ? undefined : parse(text);
    } catch (error) {
      throw new Error(`the query parameter "${name}": ${errorText(error)}`);
    }
  };
  return {
    selection: { topic: parameter("topic", parsePattern), key: parameter("key", parseText) },
    limit: parameter("limit", parseLimit) ?? LISTED_BY_DEFAULT,
  };
}

function answerInterruption(res: ServerResponse, error: unknown): void {
  const interruption = error instanceof ParkedInterruptedError ? error : undefined;
  const changed = interruption?.changed;
  if (interruption?.cause instanceof StoppingError) sendJson(res, 503, { error: "Service is shutting down", changed });
  else if (interruption?.cause instanceof StoreError) sendJson(res, 500, { error: "Storage failed", changed });
  else throw error;
}

import { ParkedInterruptedError, parkedRowShown } from "../../core/finished/parked.ts";
import {
  type ParkedSelection,
  parseLimit,
  parseParkedChange,
  parsePattern,
  parseText,
} from "../../core/finished/requests.ts";
import { errorText } from "../../model/errors.ts";
import type { ParkedRow } from "../../ports/parkedStore.ts";
import { sendJson } from "../respond.ts";
import type { RouteHandler } from "../routes.ts";
import { answerInterruption, answerWith, type Guard, parsed, parseOptionalBody } from "./requests.ts";

export interface ParkedOptions {
  readonly list: (selection: ParkedSelection, limit: number) => Promise<readonly ParkedRow[]>;
  /**
   * Runs to its end, whether or not its caller still waits for it, as does `discard`.
   *
   * @throws ParkedInterruptedError; its cause is a StoreError, or a StoppingError when the service stops
   */
  readonly retry: (selection: ParkedSelection, by: string) => Promise<number>;
  readonly discard: (selection: ParkedSelection, by: string, reason: string) => Promise<number>;
}

const LISTED_BY_DEFAULT = 50;

/** `GET /admin/parked` */
export function parkedListHandler(guard: Guard, { list }: ParkedOptions): RouteHandler {
  return guard(async ({ url }, res) => {
    const query = parsed(res, () => parseQuery(url));
    if (query === undefined) return;
    const { selection, limit } = query.value;
    await answerWith(res, async () => ({ rows: (await list(selection, limit)).map(parkedRowShown) }));
  });
}

/** `POST /admin/parked/retry` and `/discard`. @param asksReason whether `reason` is required */
export function parkedChangeHandler(guard: Guard, asksReason: boolean, change: ParkedOptions["discard"]): RouteHandler {
  return guard(async ({ body }, res) => {
    const request = parsed(res, () => parseParkedChange(parseOptionalBody(body), asksReason));
    if (request === undefined) return;
    const { selection, by, reason } = request.value;
    try {
      sendJson(res, 200, { changed: await change(selection, by, reason) });
    } catch (error) {
      if (!(error instanceof ParkedInterruptedError)) throw error;
      answerInterruption(res, error, { changed: error.changed });
    }
  });
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

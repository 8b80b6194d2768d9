import type { ServerResponse } from "node:http";
import type { InboundAuth } from "../../adapters/sources/http/schema.ts";
import type { Pull, PullResult } from "../../core/delivery/pull.ts";
import { isUuid, MESSAGE_ID as ROW_ID } from "../../core/operations/syntax.ts";
import { jsonText } from "../../core/receipt/jsonDocument.ts";
import * as schema from "../../model/described.ts";
import { StoreError } from "../../model/errors.ts";
import { OPERATIONS, type OperationId } from "../../model/routes.ts";
import type { ClaimToken, MessageId } from "../../model/rows.ts";
import type { PullClaim } from "../../ports/pullStore.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { accessOf, createVerifier } from "../credentials.ts";
import { admit, type BodyLimits, ERRORS, sendError, sendJson } from "../exchange.ts";
import * as field from "../fields.ts";
import * as answer from "../openapi/answers.ts";
import { type Route, route, sourceIds } from "../routes.ts";
import type { PullWaiters } from "./waiters.ts";

export interface PullOptions {
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

/** A pull operation of one source: how its requests are read, what it does, and how the OpenAPI document describes it. */
interface Declaration<F extends field.Fields> {
  /** To be followed by the name of the source. */
  readonly summary: string;
  readonly fields: F;
  /** Of its component in the document; without one each source has its own. */
  readonly schemaName?: string;
  readonly example: object;
  readonly answers: readonly answer.Answer[];
  /** Answers a request that was admitted. @param isAdmitted whether it would be now. @throws StoreError */
  readonly work: (request: field.ValuesOf<F>, res: ServerResponse, isAdmitted: () => boolean) => Promise<void>;
}

export type PullTools = ReturnType<typeof createPull>;

/** What makes the pull routes. */
export function createPull(options: PullOptions) {
  const { settings, limits, sources, clock, log } = options;
  const access = accessOf(settings.auth, "pull", "the pull routes");
  const verifier = settings.auth === undefined ? null : createVerifier(settings.auth, clock, "request");
  const ids = sourceIds(sources);
  return {
    ...options,
    operation<F extends field.Fields>(id: OperationId, source: string, declaration: Declaration<F>): Route {
      const { summary, fields, schemaName, example, answers, work } = declaration;
      const isOptional = field.requiredOf(fields).length === 0;
      const body = field.bodySchema({ fields });
      const description = {
        summary: `${summary} of the source ${source}`,
        description: "docs/pull.md explains how to write a client.",
        access,
        body: {
          isOptional,
          description: "A JSON object.",
          schema: schemaName === undefined ? body : schema.named(schemaName, body),
          examples: { example: { value: example } },
        },
        answers: [...answers, answer.invalidBody("max must be a whole number from 1 to 1000"), answer.STORAGE_FAILED],
      };
      const path = OPERATIONS[id].path.replace("<inbox.pull.basePath>", () => settings.basePath);
      const of = {
        path: path.replace("{source}", () => encodeURIComponent(source)),
        sourceId: ids.get(source) ?? source,
      };
      return route(
        id,
        description,
        async (req, res) => {
          const bytes = await admit(req, res, { limits, verifier });
          if (bytes === null) return;
          const request = field.parsed(res, () => field.readFields(fields, readObject(bytes)));
          if (request === undefined) return;
          try {
            await work(request.value, res, () => (verifier?.refusal(req, bytes) ?? null) === null);
          } catch (error) {
            if (!(error instanceof StoreError)) throw error;
            log.error({ source, code: error.code, reason: error.message }, "a pull request failed");
            sendError(res, 500, ERRORS.storageFailed);
          }
        },
        of,
      );
    },
  };
}

/** An empty body is an object without fields. */
function readObject(body: Buffer): Readonly<Record<string, unknown>> {
  if (body.length === 0) return {};
  const text = jsonText(body);
  if (text === null) throw new Error("the body is not UTF-8");
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    throw new Error("the body is not JSON");
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
    throw new Error("the body must be a JSON object");
  }
  return parsed as Readonly<Record<string, unknown>>;
}

/** A field that is a whole number, in ms but for `max`. */
export const number = (
  { from, to, fallback }: { readonly from: number; readonly to: number; readonly fallback: number },
  description: string,
): field.Field<number, number> => ({
  schema: schema.nullable("integer", { minimum: from, maximum: to, default: fallback, description }),
  read(value, place) {
    if (typeof value === "number" && Number.isInteger(value) && value >= from && value <= to) return value;
    throw new Error(`${place} must be a whole number from ${from} to ${to}`);
  },
  absent: () => fallback,
});

/** The lease of a claim. @param fallback `inbox.pull.leaseMs` */
export const leaseMs = (fallback: number) =>
  number({ from: 1000, to: 3_600_000, fallback }, "How long the messages are held from now on, in ms.");

export const textOrNull = (description: string): field.Field<string, null> => ({
  schema: schema.nullable("string", description),
  read(value, place) {
    if (typeof value === "string") return value;
    throw new Error(`${place} must be a text`);
  },
  absent: () => null,
});

const noToken = (): never => {
  throw new Error("claimToken must be the UUID that the claim returned");
};

/** The claim, and its rows that a request is about. */
export const CLAIM = {
  claimToken: {
    schema: { ...schema.UUID, description: "The token that the claim returned." },
    read: (value) => (isUuid(value) ? (value.toLowerCase() as ClaimToken) : noToken()),
    absent: noToken,
    isRequired: true,
  } as field.Field<ClaimToken, never>,
  /** Null for all of the claim. */
  ids: {
    schema: schema.nullable("array", {
      items: schema.UUID,
      minItems: 1,
      description: "Messages of the claim; all of them when absent.",
    }),
    read(value) {
      if (!Array.isArray(value) || !value.every(isUuid)) {
        throw new Error("ids must be a list of message ids (UUIDs)");
      }
      // Some clients build the list in a loop: an empty one must not mean "all".
      if (value.length === 0) throw new Error("ids is empty; leave it out to name all messages of the claim");
      return [...new Set(value.map(ROW_ID.parse))];
    },
    absent: () => null,
  } as field.Field<readonly MessageId[], null>,
};

export const TOKEN = "0d0b9a6e-54b5-4c27-9a3b-7d8f6f0f2b11";
export const MESSAGE_ID = "0198b2f4-7c1e-7000-8000-1c5a9f0d2e43";

/**
 * 200 with what became of the messages, and 409 with the same lists when nothing is held under the token.
 *
 * @param names of the components
 * @param example has a list for each outcome
 */
export function settled(
  description: string,
  [some, nothing]: readonly [some: string, nothing: string],
  example: object,
): readonly answer.Answer[] {
  const lists = {
    ...Object.fromEntries(Object.keys(example).map((name) => [name, schema.list(schema.UUID)])),
    lost: schema.list(schema.UUID, "Messages that were named and are no longer held."),
  };
  const error = "No message is held under this claim token";
  const none = { error, ...Object.fromEntries(Object.keys(lists).map((name) => [name, []])) };
  return [
    answer.json(200, description, schema.named(some, schema.object(lists)), { ...example, lost: [] }),
    answer.json(
      409,
      "None of the messages is held under this token.",
      schema.named(nothing, schema.object({ error: schema.TEXT, ...lists })),
      none,
    ),
  ];
}

/** 200 with the lists; 409 with the same lists when the client holds none of what it names. */
export function answerSettled(
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

import type { ServerResponse } from "node:http";
import type { InboundAuth } from "../../adapters/sources/http/schema.ts";
import type { ClaimedRows, Pull, PullResult } from "../../core/delivery/pull.ts";
import { MESSAGE_ID, type Syntax } from "../../core/operations/syntax.ts";
import * as schema from "../../model/described.ts";
import { StoreError } from "../../model/errors.ts";
import { OPERATIONS, type OperationId } from "../../model/httpOperations.ts";
import type { ClaimToken, MessageId } from "../../model/rows.ts";
import type { PulledRow } from "../../ports/pullStore.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { accessOf, createVerifier } from "../credentials.ts";
import { admit, type BodyLimits, ERRORS, JSON_TYPE, send, sendError, sendJson } from "../exchange.ts";
import * as field from "../fields.ts";
import * as answer from "../openapi/answers.ts";
import { type HttpRoute, httpRoute, sourceIds } from "../routes.ts";
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

/**
 * The pull routes of each source (design, "Pull rows"; docs/pull.md). The source's name is percent-encoded in the path.
 */
export function pullRoutes(options: PullOptions): readonly HttpRoute[] {
  const tools = { ...options, operation: createOperation(options) };
  return options.sources.flatMap((source) => OPERATIONS_OF_SOURCE.map((routeOf) => routeOf(tools, source)));
}

type Tools = PullOptions & { readonly operation: ReturnType<typeof createOperation> };

function createOperation({ settings, limits, sources, clock, log }: PullOptions) {
  const access = accessOf(settings.auth, "pull", "the pull routes");
  const verifier = settings.auth === undefined ? null : createVerifier(settings.auth, clock, "request");
  const ids = sourceIds(sources);
  return <F extends field.Fields>(id: OperationId, source: string, declaration: Declaration<F>): HttpRoute => {
    const { summary, fields, schemaName, example, answers, work } = declaration;
    const body = field.bodySchema({ fields });
    const description = {
      summary: `${summary} of the source ${source}`,
      description: "docs/pull.md explains how to write a client.",
      access,
      body: {
        isOptional: field.requiredOf(fields).length === 0,
        description: "A JSON object.",
        schema: schemaName === undefined ? body : schema.named(schemaName, body),
        examples: { example: { value: example } },
      },
      answers: [...answers, answer.invalidBody(INVALID), answer.STORAGE_FAILED],
    };
    const path = OPERATIONS[id].path.replace("<inbox.pull.basePath>", () => settings.basePath);
    const of = {
      path: path.replace("{source}", () => encodeURIComponent(source)),
      sourceId: ids.get(source) ?? source,
    };
    const handle: HttpRoute["handle"] = async (req, res) => {
      const bytes = await admit(req, res, { limits, verifier });
      if (bytes === null) return;
      const request = field.parsed(res, () => field.readFields(fields, field.readBody(bytes)));
      if (request === undefined) return;
      try {
        await work(request.value, res, () => (verifier?.refusal(req, bytes) ?? null) === null);
      } catch (error) {
        if (!(error instanceof StoreError)) throw error;
        log.error({ source, code: error.code, reason: error.message }, "a pull request failed");
        sendError(res, 500, ERRORS.storageFailed);
      }
    };
    return httpRoute(id, description, handle, of);
  };
}

const INVALID = '"max" is not valid; a whole number from 1 to 1000 is expected';
const TOKEN = "0d0b9a6e-54b5-4c27-9a3b-7d8f6f0f2b11";
const ID = "0198b2f4-7c1e-7000-8000-1c5a9f0d2e43";

const number = (minimum: number, maximum: number, fallback: number, description: string) =>
  field.byDefault(field.wholeNumber(minimum, maximum, description), fallback);

/** The lease of a claim. @param fallback `inbox.pull.leaseMs` */
const leaseField = (fallback: number) =>
  number(1000, 3_600_000, fallback, "How long the messages are held from now on, in ms.");

const CLAIM_TOKEN = MESSAGE_ID as Syntax<string> as Syntax<ClaimToken>;
const IDS = field.list(MESSAGE_ID, "Messages of the claim; all of them when absent.");

const CLAIM = {
  claimToken: field.required(field.text(CLAIM_TOKEN, "The token that the claim returned."), "the UUID of the claim"),
  ids: {
    ...IDS,
    schema: { ...IDS.schema, minItems: 1 },
    read(value, place) {
      const ids = IDS.read(value, place);
      // Some clients build the list in a loop: an empty one must not mean "all".
      if (ids.length === 0) throw new Error(`"${place}" is empty; leave it out to name all messages of the claim`);
      return [...new Set(ids)];
    },
    /** Null for all of the claim. */
    absent: () => null,
  } as field.Field<readonly MessageId[], null>,
};

const claim = ({ operation, settings, waiters }: Tools, source: string) =>
  operation("pull_claim", source, {
    summary: "Claim messages",
    fields: {
      max: number(1, 1000, 10, "Most messages."),
      leaseMs: leaseField(settings.leaseMs),
      waitMs: number(0, 60_000, 0, "Longest wait for a message, in ms; 0 answers at once."),
    },
    example: { max: 10, waitMs: 20_000 },
    answers: [
      answer.json(200, "The messages, or none when the wait ended without one.", CLAIMED, {
        claimToken: null,
        leaseMs: settings.leaseMs,
        messages: [],
      }),
    ],
    async work(request, res, isAdmitted) {
      const { socket } = res.req;
      const gone = new AbortController();
      const leave = () => gone.abort();
      if (socket.destroyed || socket.readableEnded) leave();
      // Not the response's "close": a response queued behind others on its connection never emits it.
      socket.once("end", leave).once("close", leave);
      try {
        sendClaim(res, await waiters.claim(source, { ...request, isAdmitted }, gone.signal), request.leaseMs);
      } finally {
        socket.off("end", leave).off("close", leave);
      }
    },
  });

const CLAIMED = schema.named(
  "Claimed",
  schema.object({
    claimToken: schema.nullable("string", { format: "uuid", description: "Null without messages." }),
    leaseMs: { type: "integer" },
    messages: schema.list(
      schema.object({
        id: { ...schema.UUID, description: "The `id` of the inbox row." },
        aggregateId: schema.TEXT_OR_NULL,
        eventType: schema.TEXT_OR_NULL,
        idempotencyKey: schema.TEXT,
        correlationId: schema.TEXT_OR_NULL,
        attempt: { ...schema.integer("How often the message was claimed, including this claim."), minimum: 1 },
        createdAt: schema.TIME_OR_NULL,
        headers: { type: "object", additionalProperties: schema.TEXT, description: "The received headers." },
        payload: { description: "The stored document byte for byte; when it is not JSON, a string that holds it." },
      }),
      "Oldest first.",
    ),
  }),
);

/**
 * Answers a claim. The body is assembled as text: parsed and printed again, a payload would lose what JavaScript cannot
 * hold (`12345678901234567890`, `1.0`, the order and repetition of keys).
 */
function sendClaim(res: ServerResponse, claimed: ClaimedRows | null, leaseMs: number): void {
  const token = JSON.stringify(claimed?.token ?? null);
  const messages = (claimed?.rows ?? []).map(message).join(",");
  send(res, 200, JSON_TYPE, `{"claimToken":${token},"leaseMs":${leaseMs},"messages":[${messages}]}`);
}

function message({ id, aggregateId, eventType, idempotencyKey, correlationId, ...row }: PulledRow): string {
  const { attempt, createdAt, headers } = row;
  const fields = { id, aggregateId, eventType, idempotencyKey, correlationId, attempt, createdAt, headers };
  return `${JSON.stringify(fields).slice(0, -1)},"payload":${jsonOf(row.payload)}}`;
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

const acknowledge = ({ operation, pull, waiters }: Tools, source: string) =>
  operation("pull_ack", source, {
    summary: "Acknowledge claimed messages",
    fields: CLAIM,
    schemaName: "AckRequest",
    example: { claimToken: TOKEN },
    answers: settled("The messages are done.", ["Acknowledged", "NothingAcknowledged"], { acknowledged: [ID] }),
    async work({ claimToken: token, ids }, res) {
      const outcome = await pull.acknowledge({ source, token, ids });
      waiters.wake(source);
      answerSettled(res, ids, outcome, { acknowledged: outcome.result });
    },
  });

const giveBack = ({ operation, pull, waiters }: Tools, source: string) =>
  operation("pull_nack", source, {
    summary: "Give claimed messages back",
    fields: {
      ...CLAIM,
      delayMs: number(0, 86_400_000, 0, "Time until the messages are available again, in ms."),
      error: field.text(FREE_TEXT, "Why; stored with the message."),
    },
    schemaName: "NackRequest",
    example: { claimToken: TOKEN, delayMs: 5000, error: "the shop is closed" },
    answers: settled("The messages become available again, or are dead.", ["GivenBack", "NothingGivenBack"], {
      retried: [ID],
      dead: [],
      released: [],
    }),
    async work({ claimToken: token, ids, delayMs, error = null }, res) {
      const outcome = await pull.reject({ source, token, ids }, delayMs, error);
      waiters.wake(source);
      answerSettled(res, ids, outcome, outcome.result);
    },
  });

const FREE_TEXT: Syntax<string> = { parse: (text) => text, schema: { type: "string" } };

const extend = ({ operation, pull, settings }: Tools, source: string) =>
  operation("pull_extend", source, {
    summary: "Hold claimed messages for longer",
    fields: { ...CLAIM, leaseMs: leaseField(settings.leaseMs) },
    example: { claimToken: TOKEN, leaseMs: 60_000 },
    answers: settled("The leases are extended.", ["Extended", "NothingExtended"], { extended: [ID] }),
    async work({ claimToken: token, ids, leaseMs }, res) {
      const outcome = await pull.extend({ source, token, ids }, leaseMs);
      answerSettled(res, ids, outcome, { extended: outcome.result });
    },
  });

const OPERATIONS_OF_SOURCE = [claim, acknowledge, giveBack, extend];

/** 200 with a list for each outcome, as in the example, and 409 with the same lists if nothing is held. */
function settled(
  description: string,
  [some, nothing]: readonly [some: string, nothing: string],
  example: object,
): readonly answer.Answer[] {
  const lists = {
    ...Object.fromEntries(Object.keys(example).map((name) => [name, schema.list(schema.UUID)])),
    lost: schema.list(schema.UUID, "Messages that were named and are no longer held."),
  };
  const none = { error: NOTHING_HELD, ...Object.fromEntries(Object.keys(lists).map((name) => [name, []])) };
  const failed = schema.named(nothing, schema.object({ error: schema.TEXT, ...lists }));
  return [
    answer.json(200, description, schema.named(some, schema.object(lists)), { ...example, lost: [] }),
    answer.json(409, "None of the messages is held under this token.", failed, none),
  ];
}

/** 200 with the lists; 409 with the same lists when the client holds none of what it names. */
function answerSettled(
  res: ServerResponse,
  ids: readonly MessageId[] | null,
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

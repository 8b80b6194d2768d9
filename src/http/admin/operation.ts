import type { IncomingMessage, ServerResponse } from "node:http";
import type { Covered } from "../../adapters/sources/http/kind.ts";
import type { InboundAuth } from "../../adapters/sources/http/schema.ts";
import type { Operations } from "../../core/operations/operations.ts";
import { InterruptedError, NoDestinationColumnError, NotInListError } from "../../core/operations/replay.ts";
import { BY, isUuid, MESSAGE_ID, numberUpTo } from "../../core/operations/syntax.ts";
import { UUID } from "../../model/described.ts";
import { CellError, StoppingError, StoreError, withoutTable } from "../../model/errors.ts";
import type { OperationId } from "../../model/httpOperations.ts";
import type { Evaluator } from "../../ports/evaluator.ts";
import type { OperationsStore } from "../../ports/operationsStore.ts";
import type { Cells } from "../../ports/operatorStore.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { sleep } from "../../time/wait.ts";
import { crossSiteRefusal, foreignHostRefusal } from "../console/origin.ts";
import type { Session, Sessions } from "../console/sessions.ts";
import { accessOf, createVerifier, hasCredentials } from "../credentials.ts";
import { type AnswerError, admit, type BodyLimits, ERRORS, sendError, sendJson } from "../exchange.ts";
import * as field from "../fields.ts";
import { type Answer, namingIgnored, type RouteDescription, TOO_MANY_READS } from "../openapi/answers.ts";
import { type HttpRoute, httpRoute, type RouteHandler } from "../routes.ts";
import type { EventStream } from "./events.ts";

/**
 * Reads for an operator in turn. @param question equal ones have equal answers. @param isGone whether the caller left
 * @throws what `read` throws; the failure of an earlier read that found no database; Refusal (503) when too many reads
 *   wait, or all callers have left
 */
type HeavyReads = <T>(question: string, read: () => Promise<T>, isGone?: () => boolean) => Promise<T>;

/** What the admin operations work with. */
export interface AdminOptions extends GuardOptions, Operations {
  readonly admin: GuardOptions["admin"] & { readonly maxTransformTimeoutMs: number; readonly showPayloads: boolean };
  readonly evaluator: Pick<Evaluator, "evaluate">;
  /** Runs a change to its end, whether or not its caller still waits; the signal ends it when the service stops. */
  readonly run: <T>(change: (signal: AbortSignal) => Promise<T>) => Promise<T>;
  readonly events: Pick<EventStream, "follow">;
  readonly heavyReads: HeavyReads;
  /** The configuration in effect as text, masked. */
  readonly configText: string;
  readonly operations: Pick<OperationsStore, "audit">;
  /** Undefined without cells. */
  readonly cells?: Pick<Cells, "watch"> | undefined;
}

interface Declaration<P extends field.Fields, Q extends field.Fields, B extends field.Fields> {
  readonly summary: string;
  readonly description: string;
  readonly path?: P;
  readonly query?: Q;
  readonly body?: field.JsonBody<B>;
  /** Besides those of every route that needs credentials, or has a body. */
  readonly answers: readonly Answer[];
  /** The answer has passed its own mask. */
  readonly isMasked?: true;
  /** The answer of a read says itself which cells are missing. */
  readonly namesCells?: true;
  /**
   * @returns the body of the answer 200, or what writes the whole answer
   * @throws InvalidRequest, Refusal, a StoreError (500), or the error of a change that was interrupted between two
   *   batches, whose answer has the count so far
   */
  readonly work: (request: field.ValuesOf<P & Q & B>) => Promise<object | Answering>;
}

/** @param ignored names of unknown fields */
type Answering = (res: ServerResponse, ignored: readonly string[]) => Promise<void>;

type None = Readonly<Record<never, never>>;

/** How many things a list has when its request does not say. */
export const LISTED_BY_DEFAULT = 50;

/** Who makes a change: credentials name no person, so the caller does. */
export const CALLER: field.Field<string, string> = {
  ...field.text(
    { ...BY, parse: (text) => `${BY.parse(text)} (admin route)` },
    "Who makes the change; kept with ` (admin route)` appended.",
  ),
  absent: () => "admin route",
};

export const AS_ALICE = { example: { summary: "An example", value: { by: "alice" } } };

export const LIMIT = field.inQuery(numberUpTo(500), `How many at most; ${LISTED_BY_DEFAULT} by default.`);

/** The id in a path; undefined for a text that is no id. */
export const idInPath = (description: string) => ({
  id: field.ofPath(UUID, description, (text) => (isUuid(text) ? MESSAGE_ID.parse(text) : undefined)),
});

/** The request does not make sense as a whole; the message is the reason, to follow `Invalid request: `. */
export class InvalidRequest extends Error {
  override readonly name = "InvalidRequest";
}

/** A request that is valid and cannot be served; the message is the answer. */
export class Refusal extends Error {
  override readonly name = "Refusal";
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** Works on a table that may be missing. @throws Refusal with the message when it is */
export async function onTable<T extends object>(message: string, work: () => Promise<T>): Promise<T> {
  const result = await work().catch(withoutTable);
  if (result === undefined) throw new Refusal(501, message);
  return result;
}

export type Admin = ReturnType<typeof createAdmin>;

export function createAdmin(options: AdminOptions) {
  const { admin, limits, cells, heavyReads, log, show } = options;
  const access = accessOf(admin.insecure ? undefined : admin.auth, "admin", "the admin routes");
  const guard = createGuard(options, "request");
  const { maxBytes } = limits;
  const describe = <P extends field.Fields, Q extends field.Fields, B extends field.Fields>(
    { summary, description, path, query, body, answers }: Declaration<P, Q, B>,
    further: readonly Answer[] = [],
  ): RouteDescription => ({
    summary,
    description,
    access,
    parameters: field.describeParameters(path ?? {}, query ?? {}),
    body: body && {
      maxBytes,
      isOptional: field.requiredOf(body.fields).length === 0 && body.keywords === undefined,
      schema: field.bodySchema(body),
      ...(body.examples && { examples: body.examples }),
    },
    answers: [...(body ? namingIgnored(answers) : answers), ...further],
  });
  return {
    ...options,
    access,
    guard,
    /** For the routes of the specification, whose signatures cover the body. */
    guardBody: createGuard(options, "body"),

    operation<P extends field.Fields = None, Q extends field.Fields = None, B extends field.Fields = None>(
      id: OperationId,
      declaration: Declaration<P, Q, B>,
      by: Guard = guard,
    ): HttpRoute {
      const { work, isMasked } = declaration;
      const answer = answering(log, declaration, async (request) => {
        const done = await work(request);
        return isMasked || typeof done === "function" ? done : show(done);
      });
      return httpRoute(id, describe(declaration), by(answer));
    },

    /** Makes the route of an operation that may read many rows: in turn with others; the answer names missing cells. */
    read<P extends field.Fields = None, Q extends field.Fields = None>(
      id: OperationId,
      declaration: Declaration<P, Q, None>,
    ): HttpRoute {
      const { work, namesCells } = declaration;
      const named = namesCells ? undefined : cells;
      // Of a large answer that many share, the making of its text is the most work.
      const textOf = async (request: field.ValuesOf<P & Q>) =>
        JSON.stringify(show(await namingMissing(named, () => work(request))));
      const answer = answering(log, declaration, (request, isGone) =>
        heavyReads(`${id} ${JSON.stringify(request)}`, () => textOf(request), isGone),
      );
      return httpRoute(id, describe(declaration, [TOO_MANY_READS]), guard(answer));
    },
  };
}

/** Makes an answer, with the names of the cells that it is without. @param cells undefined without cells */
export async function namingMissing(cells: AdminOptions["cells"], answer: () => Promise<object>): Promise<object> {
  const leftOut = cells?.watch();
  const body = await answer();
  const missingCells = leftOut?.().map(({ name }) => name) ?? [];
  return missingCells.length === 0 ? body : { ...body, missingCells };
}

/**
 * Answers with what `work` returns, as JSON unless it is a text of JSON. An answer to a body names in `ignored` the
 * members that are no fields: callers must see that a misspelt filter, or a `dryRun` elsewhere, had no effect.
 *
 * @param log gets the reason of a failure, which the answer may not tell
 * @param work can ask whether the caller has ended its side of the connection
 */
function answering<P extends field.Fields, Q extends field.Fields, B extends field.Fields>(
  log: AdminOptions["log"],
  { path, query, body }: Pick<Declaration<P, Q, B>, "path" | "query" | "body">,
  work: (request: field.ValuesOf<P & Q & B>, isGone: () => boolean) => Promise<object | string | Answering>,
) {
  const read = (request: AdminRequest) => {
    const given = body === undefined ? {} : field.readBody(request.body);
    const asked = field.queryOf(request.url);
    const values = {
      ...field.readFields(path ?? {}, request.parameters),
      ...field.readFields(query ?? {}, asked),
      ...(body && field.readFields(body.fields, given)),
    } as field.ValuesOf<P & Q & B>;
    // A parameter of the query must not pass for a field of the body.
    const unknown = [...field.unknownNames(query ?? {}, asked), ...field.unknownNames(body?.fields ?? {}, given)];
    return { values, ignored: body === undefined ? [] : unknown };
  };
  return async function answer(request: AdminRequest, res: ServerResponse): Promise<void> {
    const { socket } = res.req;
    const valid = field.parsed(res, () => read(request));
    if (valid === undefined) return;
    const { values, ignored } = valid.value;
    if (ignored.length > 0) {
      log.warn({ path: pathOf(request.url), ignored: ignored.join(", ") }, "an admin request has unknown fields");
    }
    try {
      const done = await work(values, () => socket.destroyed || socket.readableEnded);
      if (typeof done === "function") await done(res, ignored);
      else sendJson(res, 200, ignored.length > 0 && typeof done === "object" ? { ...done, ignored } : done);
    } catch (error) {
      if (error instanceof StoreError) {
        log.error({ path: pathOf(request.url), code: error.code, reason: error.message }, "an admin request failed");
      }
      answerError(res, error);
    }
  };
}

function answerError(res: ServerResponse, error: unknown): void {
  if (error instanceof InvalidRequest || error instanceof NotInListError) sendError(res, 400, invalid(error));
  else if (error instanceof Refusal) sendError(res, error.status, error.message);
  else if (error instanceof NoDestinationColumnError) sendError(res, 501, ERRORS.noDestinationColumn);
  else if (error instanceof StoreError) sendError(res, 500, storageFailure(error));
  else if (error instanceof InterruptedError) {
    const { status, ...body } = interruption(error);
    sendJson(res, status, body);
  } else throw error;
}

const invalid = ({ message }: Error): string => `Invalid request: ${message}`;

/** With cells an operator must know which of them failed. */
function storageFailure(error: StoreError): string {
  return error instanceof CellError
    ? `${error.message.charAt(0).toUpperCase()}${error.message.slice(1)}`
    : ERRORS.storageFailed;
}

/** What is answered when a change ended early. @throws the error for a cause that is no fault of database or request */
export function interruption(error: InterruptedError): { readonly status: number; readonly error: string } {
  const { cause, finishedBefore } = error;
  const done = { ...error.done, finishedBefore };
  if (cause instanceof StoppingError) return { status: 503, error: ERRORS.shuttingDown, ...done };
  if (cause instanceof NotInListError) return { status: 400, error: `${invalid(cause)}; ${error.message}` };
  if (cause instanceof StoreError) return { status: 500, error: storageFailure(cause), ...done };
  throw error;
}

export interface GuardOptions {
  /** Section `admin`. */
  readonly admin: { readonly auth?: InboundAuth | undefined; readonly insecure: boolean; readonly console?: boolean };
  /** Of the console: they count as credentials in requests that bring none. */
  readonly sessions?: Sessions | undefined;
  readonly limits: BodyLimits;
  readonly clock: Pick<Clock, "now">;
  readonly log: Log;
}

interface AdminRequest {
  readonly body: Buffer;
  readonly url: string;
  readonly parameters: Readonly<Record<string, string>>;
  /** Whether the credentials that let it in would do so now. */
  readonly isAdmitted: () => boolean;
}

type AdminHandler = (request: AdminRequest, res: ServerResponse) => Promise<void>;

/** Makes the route handler of an admin operation. @param answerError in the form of the route */
type Guard = (handle: AdminHandler, answerError?: AnswerError) => RouteHandler;

/**
 * Checks body and credentials before each admin operation (spec, "Authentication").
 *
 * @param covered what a signature must cover
 * @throws Error without credentials to check, unless `admin.insecure` is set
 */
export function createGuard({ admin, sessions, limits, clock, log }: GuardOptions, covered: Covered): Guard {
  // The configuration's own check demands it too: without credentials nobody may be let in by mistake.
  if (admin.auth === undefined && !admin.insecure) throw new Error("admin.auth is required without admin.insecure");
  const { auth } = admin;
  const verifier = auth === undefined || admin.insecure ? null : createVerifier(auth, clock, covered);
  return (handle, answerError = sendError) =>
    async function guarded(req, res, parameters) {
      const { url = "" } = req;
      const onRefused = (_req: unknown, reason: string): void =>
        log.warn({ path: pathOf(url), reason }, "an admin request was refused");
      // A session never makes up for wrong credentials.
      const session = verifier === null || hasCredentials(req.headers, auth) ? undefined : sessions?.of(req);
      const refusal =
        verifier === null
          ? (foreignHostRefusal(req, admin.console ?? false) ?? crossSiteRefusal(req))
          : browserRefusal(req, session, sessions);
      if (refusal !== null) {
        onRefused(req, refusal);
        return answerError(res, 403, refusal);
      }
      if (session !== undefined) sessions?.renew(req, res, session);
      const admission = { limits, verifier: session === undefined ? verifier : null, onRefused };
      const body = await admit(req, res, admission, answerError);
      if (body === null) return;
      const isAdmitted = (): boolean =>
        session === undefined ? (verifier?.refusal(req, body) ?? null) === null : sessions?.of(req) !== undefined;
      await handle({ body, url, parameters, isAdmitted }, res);
    };
}

/** Without the query, which may quote what an operator looks for. */
const pathOf = (url: string): string | undefined => url.split("?", 1)[0];

/**
 * Why a browser may have sent a request for another site; null if it did not, or the request has credentials of its
 * own.
 */
function browserRefusal(
  req: IncomingMessage,
  session: Session | undefined,
  sessions: Sessions | undefined,
): string | null {
  if (session === undefined) return null;
  const isRead = req.method === "GET" || req.method === "HEAD";
  return isRead || sessions?.hasCsrfToken(req, session) ? crossSiteRefusal(req) : ERRORS.noCsrfToken;
}

/** Rest behind a read, as a multiple of its time: reads have a sixth of the process, more if they take long. */
const REST_FACTOR = 5;
const LONGEST_REST_MS = 500;
/** A console asks a few questions a second. */
const MOST_WAITING = 100;

/**
 * Reads for operators, which may take many rows: whatever is asked, and by how many, one runs at a time, and a rest
 * follows it. All that ask a question before its read begins share its answer: none is older than its question.
 */
export function createHeavyReads(clock: Pick<Clock, "monotonic">, wait = (ms: number) => sleep(ms)): HeavyReads {
  /** By question, the reads that have not begun. */
  const asked = new Map<string, Asked>();
  let last: Promise<unknown> = Promise.resolve();
  let restsUntil = 0;
  return <T>(question: string, read: () => Promise<T>, isGone = () => false) => {
    const known = asked.get(question);
    known?.callers.push(isGone);
    if (known !== undefined) return known.answer as Promise<T>;
    if (asked.size >= MOST_WAITING) return Promise.reject(new Refusal(503, ERRORS.tooManyReads));
    const run = async (): Promise<T> => {
      if (own.outage === undefined) await wait(Math.max(0, restsUntil - clock.monotonic()));
      asked.delete(question);
      if (own.outage !== undefined) throw own.outage;
      if (own.callers.every((isGone) => isGone())) throw new Refusal(503, "The caller left before the read began");
      const begunAt = clock.monotonic();
      try {
        return await read();
      } catch (error) {
        // Each waiting read would take as long to fail in the same way; of cells, only the first one waits.
        if (error instanceof StoreError && error.code === "unavailable" && !(error instanceof CellError))
          for (const other of asked.values()) other.outage = error;
        throw error;
      } finally {
        const now = clock.monotonic();
        restsUntil = now + Math.min(REST_FACTOR * (now - begunAt), LONGEST_REST_MS);
      }
    };
    const answer = last.then(run);
    const own: Asked = { answer, callers: [isGone], outage: undefined };
    asked.set(question, own);
    last = answer.catch(() => {});
    return answer;
  };
}

interface Asked {
  readonly answer: Promise<unknown>;
  readonly callers: (() => boolean)[];
  /** Of the read before: the database did not answer. */
  outage: StoreError | undefined;
}

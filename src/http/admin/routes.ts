import { type DestinationControl, type PauseRequest, parsePauseDuration } from "../../core/destinations/control.ts";
import { parkedRowShown } from "../../core/finished/parked.ts";
import {
  hasFilter,
  NO_FILTER,
  type ParkedSelection,
  parseCaller,
  parseLimit,
  parseParkedChange,
  parsePattern,
  parseReason,
  parseReplayRequest,
  parseText,
  type ReplayRequest,
  requireObject,
  single,
} from "../../core/finished/requests.ts";
import type { Overview } from "../../core/operations/overview.ts";
import type { Trace } from "../../core/trace/trace.ts";
import type { Evaluator } from "../../ports/evaluator.ts";
import type { OperationsStore } from "../../ports/operationsStore.ts";
import type { ParkedRow } from "../../ports/store.ts";
import { accessOf } from "../credentials.ts";
import { describeAdmin } from "../openapi/admin.ts";
import { describeConsoleReads } from "../openapi/console.ts";
import { describeMessages } from "../openapi/messages.ts";
import { describeOperations } from "../openapi/operations.ts";
import { describeReplayJobs } from "../openapi/replayJobs.ts";
import { ERRORS } from "../respond.ts";
import { type Route, type RouteHandler, route } from "../routes.ts";
import type { EventStream } from "./events.ts";
import { findMessages, parseMessageId, parseMessagesQuery, showMessage } from "./messages.ts";
import {
  parseAuditQuery,
  parseFailuresQuery,
  parseLimitQuery,
  parseOverviewQuery,
  showAudit,
  showBlockedKeys,
  showFailures,
  showOverview,
} from "./operations.ts";
import {
  changeJob,
  type JobControl,
  listJobs,
  type MessageControl,
  messageAction,
  parseAction,
  parseDiscard,
  parseJobId,
  parseJobRequest,
  parseMessageReplay,
  showJob,
  startJob,
} from "./replayJobs.ts";
import {
  type AdminRequest,
  answering,
  createGuard,
  type GuardOptions,
  knownNames,
  parseJsonBody,
  parseOptionalBody,
  queryParameters,
  Refusal,
  requireDestination,
} from "./requests.ts";
import { transformTestHandler } from "./transformTrial.ts";

interface AdminRouteOptions extends GuardOptions {
  readonly admin: GuardOptions["admin"] & { readonly maxTransformTimeoutMs: number; readonly showPayloads: boolean };
  readonly evaluator: Pick<Evaluator, "evaluate">;
  readonly replay: {
    /**
     * Runs to its end, whether or not its caller still waits for it, as do the changes of parked rows.
     *
     * @throws ReplayInterruptedError; its cause is a StoreError, or a StoppingError when the service stops
     */
    readonly run: (request: ReplayRequest, by: string) => Promise<{ readonly moved: number }>;
    /** Names of the configured destinations. */
    readonly destinations: readonly string[];
  };
  readonly destinations: DestinationControl;
  readonly parked: {
    readonly list: (selection: ParkedSelection, limit: number) => Promise<readonly ParkedRow[]>;
    /** @throws ParkedInterruptedError, as `replay.run` */
    readonly retry: (selection: ParkedSelection, by: string) => Promise<number>;
    readonly discard: (selection: ParkedSelection, by: string, reason: string) => Promise<number>;
  };
  readonly jobs: JobControl;
  readonly messages: MessageControl;
  readonly trace: Pick<Trace, "list" | "timeline">;
  readonly events: Pick<EventStream, "follow">;
  /** The configuration in effect as text, masked. */
  readonly configText: string;
  readonly overview: Overview;
  readonly operations: Pick<OperationsStore, "audit">;
}

/**
 * The routes of the role `admin`: transform tests, replay, parked rows, destinations, messages, the overview and the
 * audit log.
 */
export function adminRoutes(options: AdminRouteOptions): readonly Route[] {
  const {
    admin,
    limits,
    evaluator,
    replay,
    jobs,
    messages,
    parked,
    trace,
    overview,
    operations,
    destinations,
    sessions,
    clock,
    log,
  } = options;
  const { auth, insecure, maxTransformTimeoutMs } = admin;
  const guard = createGuard({ admin, sessions, limits, clock, log });
  const access = accessOf(insecure ? undefined : auth, "admin", "the admin routes");
  const describe = {
    ...describeMessages(access),
    ...describeConsoleReads(access),
    ...describeOperations(access),
    ...describeReplayJobs(access, replay.destinations),
    ...describeAdmin({
      access,
      destinations: replay.destinations,
      maxBodyBytes: limits.maxBytes,
      maxTransformTimeoutMs,
    }),
  };
  const handle = <T>(parse: (request: AdminRequest) => T, work: (request: T) => Promise<object>): RouteHandler =>
    guard(answering(parse, work));
  const changeParked = (asksReason: boolean, change: AdminRouteOptions["parked"]["discard"]): RouteHandler =>
    handle(
      ({ body }) => parseParkedChange(parseOptionalBody(body), asksReason),
      async ({ selection, by, reason }) => ({ changed: await change(selection, by, reason) }),
    );
  return [
    route(
      "admin_transform_test",
      describe.transformTest,
      transformTestHandler(guard, { evaluator, maxTimeoutMs: maxTransformTimeoutMs, clock }),
    ),
    route(
      "admin_replay",
      describe.replay,
      handle(
        ({ body }) => parseReplay(body, replay.destinations),
        async ({ request, by }) => {
          // A request without a filter must not mean everything.
          if (!hasFilter(request)) throw new Refusal(400, NO_FILTER);
          return { moved: (await replay.run(request, by)).moved };
        },
      ),
    ),
    route(
      "admin_destinations",
      describe.destinations,
      handle(noParameters, async () => ({ destinations: await destinations.list() })),
    ),
    route(
      "admin_destination_pause",
      describe.pause,
      handle(parsePause, async ({ name, pause, by }) => {
        requireChangeable(destinations, name);
        await destinations.pause(name, pause, by);
        return { paused: true };
      }),
    ),
    route(
      "admin_destination_resume",
      describe.resume,
      handle(parseResume, async ({ name, by }) => {
        requireChangeable(destinations, name);
        return { resumed: await destinations.resume(name, by) };
      }),
    ),
    route(
      "admin_parked_list",
      describe.parkedList,
      handle(parseParkedQuery, async ({ selection, limit }) => ({
        rows: (await parked.list(selection, limit)).map(parkedRowShown),
      })),
    ),
    route("admin_parked_retry", describe.parkedRetry, changeParked(false, parked.retry)),
    route("admin_parked_discard", describe.parkedDiscard, changeParked(true, parked.discard)),
    route("admin_messages", describe.messages, handle(parseMessagesQuery, findMessages(trace))),
    route("admin_message", describe.message, handle(parseMessageId, showMessage(trace, admin.showPayloads))),
    route(
      "admin_config",
      describe.config,
      handle(noParameters, async () => ({ text: options.configText })),
    ),
    route(
      "admin_events",
      describe.events,
      guard(async ({ session }, res) => {
        const endsInMs = session && sessions && sessions.endsAt(session) - clock.now();
        options.events.follow(res, endsInMs);
      }),
    ),
    route(
      "admin_message_retry",
      describe.messageRetry,
      handle(
        parseAction,
        messageAction(({ id, by }) => messages.retry(id, by)),
      ),
    ),
    route(
      "admin_message_discard",
      describe.messageDiscard,
      handle(
        parseDiscard,
        messageAction(({ id, by, reason }) => messages.discard(id, by, reason)),
      ),
    ),
    route(
      "admin_message_replay",
      describe.messageReplay,
      handle(
        (request) => parseMessageReplay(request, replay.destinations),
        messageAction(({ id, by, toDestination }) => messages.replay(id, by, toDestination)),
      ),
    ),
    route("admin_replays", describe.replayJobs, handle(noParameters, listJobs(jobs))),
    route(
      "admin_replay_start",
      describe.replayStart,
      handle((request) => parseJobRequest(request, replay.destinations), startJob(jobs)),
    ),
    route("admin_replay_job", describe.replayJob, handle(parseJobId, showJob(jobs))),
    route("admin_replay_cancel", describe.replayCancel, handle(parseJobId, changeJob(jobs, "cancelled"))),
    route("admin_replay_resume", describe.replayResume, handle(parseJobId, changeJob(jobs, "resumed"))),
    route("admin_overview", describe.overview, handle(parseOverviewQuery, showOverview(overview))),
    route("admin_failures", describe.failures, handle(parseFailuresQuery, showFailures(overview))),
    route("admin_blocked_keys", describe.blockedKeys, handle(parseLimitQuery, showBlockedKeys(overview))),
    route("admin_audit", describe.audit, handle(parseAuditQuery, showAudit(operations))),
  ];
}

const noParameters = (): undefined => undefined;

function parseReplay(body: Buffer, destinations: readonly string[]) {
  const fields = parseOptionalBody(body);
  const request = parseReplayRequest(fields);
  const by = parseCaller(fields);
  requireDestination("destination", request.destination, destinations);
  requireDestination("toDestination", request.toDestination, destinations);
  return { request, by };
}

/** Body `{"reason": "...", "for": "2h", "by": "alice"}`; without `for` until it is resumed. */
function parsePause({ body, parameters: { name = "" } }: AdminRequest) {
  const fields = requireObject(parseJsonBody(body));
  const reason = single(fields, "reason", parseReason);
  if (reason === undefined) throw new Error('"reason" is missing; a text that says why is expected');
  const pause: PauseRequest = { reason, forMs: single(fields, "for", parsePauseDuration) };
  return { name, pause, by: parseCaller(fields) };
}

/** Body `{"by": "alice"}`, or none. */
function parseResume({ body, parameters: { name = "" } }: AdminRequest) {
  return { name, by: parseCaller(parseOptionalBody(body)) };
}

/** @throws Refusal when the destination is not configured, or the table for its pause is missing */
function requireChangeable(control: DestinationControl, name: string): void {
  if (!control.isKnown(name)) {
    throw new Refusal(404, `There is no destination ${JSON.stringify(name)} (${knownNames(control.names)})`);
  }
  if (!control.canPause) throw new Refusal(501, ERRORS.noDestinationTable);
}

const LISTED_BY_DEFAULT = 50;

function parseParkedQuery({ url }: AdminRequest): { readonly selection: ParkedSelection; readonly limit: number } {
  const parameter = queryParameters(url);
  return {
    selection: { topic: parameter("topic", parsePattern), key: parameter("key", parseText) },
    limit: parameter("limit", parseLimit) ?? LISTED_BY_DEFAULT,
  };
}

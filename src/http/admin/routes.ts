import { type DestinationControl, type PauseRequest, parsePauseDuration } from "../../core/destinations/control.ts";
import {
  hasFilter,
  NO_FILTER,
  type ParkedSelection,
  parseCaller,
  parseParkedChange,
  parseReason,
  parseReplayRequest,
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
import { describeDestinations, describeParked, describeTransformTest } from "../openapi/admin.ts";
import type { RouteDescription } from "../openapi/answers.ts";
import { READS } from "../openapi/reads.ts";
import { describeReplays } from "../openapi/replays.ts";
import { ERRORS } from "../respond.ts";
import { type Route, type RouteHandler, route } from "../routes.ts";
import type { EventStream } from "./events.ts";
import { findMessages, MESSAGES_QUERY, parseMessageId, showMessage } from "./messages.ts";
import {
  AUDIT_QUERY,
  FAILURES_QUERY,
  LIMIT_QUERY,
  OVERVIEW_QUERY,
  showAudit,
  showBlockedKeys,
  showFailures,
  showOverview,
} from "./operations.ts";
import { listParked, PARKED_QUERY } from "./parked.ts";
import { readQuery } from "./query.ts";
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
    ...READS,
    ...describeReplays(replay.destinations, limits.maxBytes),
    ...describeDestinations(limits.maxBytes),
    ...describeParked(limits.maxBytes),
    admin_transform_test: describeTransformTest(limits.maxBytes, maxTransformTimeoutMs),
  } satisfies Readonly<Record<string, RouteDescription>>;
  const at = (id: keyof typeof describe, handler: RouteHandler): Route =>
    route(id, { access, ...describe[id] }, handler);
  const handle = <T>(parse: (request: AdminRequest) => T, work: (request: T) => Promise<object>): RouteHandler =>
    guard(answering(parse, work));
  const changeParked = (asksReason: boolean, change: AdminRouteOptions["parked"]["discard"]): RouteHandler =>
    handle(
      ({ body }) => parseParkedChange(parseOptionalBody(body), asksReason),
      async ({ selection, by, reason }) => ({ changed: await change(selection, by, reason) }),
    );
  return [
    at("admin_transform_test", transformTestHandler(guard, { evaluator, maxTimeoutMs: maxTransformTimeoutMs, clock })),
    at(
      "admin_replay",
      handle(
        ({ body }) => parseReplay(body, replay.destinations),
        async ({ request, by }) => {
          // A request without a filter must not mean everything.
          if (!hasFilter(request)) throw new Refusal(400, NO_FILTER);
          return { moved: (await replay.run(request, by)).moved };
        },
      ),
    ),
    at(
      "admin_destinations",
      handle(noParameters, async () => ({ destinations: await destinations.list() })),
    ),
    at(
      "admin_destination_pause",
      handle(parsePause, async ({ name, pause, by }) => {
        requireChangeable(destinations, name);
        await destinations.pause(name, pause, by);
        return { paused: true };
      }),
    ),
    at(
      "admin_destination_resume",
      handle(parseResume, async ({ name, by }) => {
        requireChangeable(destinations, name);
        return { resumed: await destinations.resume(name, by) };
      }),
    ),
    at("admin_parked_list", handle(readQuery(PARKED_QUERY), listParked(parked.list))),
    at("admin_parked_retry", changeParked(false, parked.retry)),
    at("admin_parked_discard", changeParked(true, parked.discard)),
    at("admin_messages", handle(readQuery(MESSAGES_QUERY), findMessages(trace))),
    at("admin_message", handle(parseMessageId, showMessage(trace, admin.showPayloads))),
    at(
      "admin_config",
      handle(noParameters, async () => ({ text: options.configText })),
    ),
    at(
      "admin_events",
      guard(async ({ session }, res) => {
        const endsInMs = session && sessions && sessions.endsAt(session) - clock.now();
        options.events.follow(res, endsInMs);
      }),
    ),
    at(
      "admin_message_retry",
      handle(
        parseAction,
        messageAction(({ id, by }) => messages.retry(id, by)),
      ),
    ),
    at(
      "admin_message_discard",
      handle(
        parseDiscard,
        messageAction(({ id, by, reason }) => messages.discard(id, by, reason)),
      ),
    ),
    at(
      "admin_message_replay",
      handle(
        (request) => parseMessageReplay(request, replay.destinations),
        messageAction(({ id, by, toDestination }) => messages.replay(id, by, toDestination)),
      ),
    ),
    at("admin_replays", handle(noParameters, listJobs(jobs))),
    at(
      "admin_replay_start",
      handle((request) => parseJobRequest(request, replay.destinations), startJob(jobs)),
    ),
    at("admin_replay_job", handle(parseJobId, showJob(jobs))),
    at("admin_replay_cancel", handle(parseJobId, changeJob(jobs, "cancelled"))),
    at("admin_replay_resume", handle(parseJobId, changeJob(jobs, "resumed"))),
    at("admin_overview", handle(readQuery(OVERVIEW_QUERY), showOverview(overview))),
    at("admin_failures", handle(readQuery(FAILURES_QUERY), showFailures(overview))),
    at("admin_blocked_keys", handle(readQuery(LIMIT_QUERY), showBlockedKeys(overview))),
    at("admin_audit", handle(readQuery(AUDIT_QUERY), showAudit(operations))),
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

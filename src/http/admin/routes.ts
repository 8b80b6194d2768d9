import type { DestinationControl } from "../../core/destinations/control.ts";
import type { MessageActions } from "../../core/finished/messageActions.ts";
import type { Parked } from "../../core/finished/parked.ts";
import type { Replay } from "../../core/finished/replay.ts";
import type { ReplayJobs } from "../../core/finished/replayJobs.ts";
import { hasFilter, NO_FILTER } from "../../core/finished/requests.ts";
import type { Overview } from "../../core/operations/overview.ts";
import type { Show } from "../../core/redaction/hidePayload.ts";
import type { Trace } from "../../core/trace/trace.ts";
import type { Evaluator } from "../../ports/evaluator.ts";
import type { OperationsStore } from "../../ports/operationsStore.ts";
import type { Cells } from "../../ports/operatorStore.ts";
import { accessOf } from "../credentials.ts";
import { ERRORS } from "../exchange.ts";
import { type RouteDescription, TOO_MANY_READS } from "../openapi/answers.ts";
import { describeDestinations, describeParked, describeReplays, describeTransformTest } from "../openapi/changes.ts";
import { READS } from "../openapi/reads.ts";
import { type Route, type RouteHandler, route } from "../routes.ts";
import * as changes from "./changes.ts";
import type { EventStream } from "./events.ts";
import type { HeavyReads } from "./heavyReads.ts";
import { readQuery } from "./query.ts";
import * as reads from "./reads.ts";
import { type AdminRequest, answering, createGuard, type GuardOptions, Refusal } from "./requests.ts";
import { transformTestHandler } from "./transformTrial.ts";

interface AdminRouteOptions extends GuardOptions {
  readonly admin: GuardOptions["admin"] & { readonly maxTransformTimeoutMs: number; readonly showPayloads: boolean };
  readonly evaluator: Pick<Evaluator, "evaluate">;
  readonly run: changes.RunChange;
  readonly replay: Pick<Replay, "run">;
  readonly jobs: ReplayJobs;
  readonly messages: MessageActions;
  readonly parked: Pick<Parked, "list" | "retry" | "discard">;
  readonly destinations: DestinationControl;
  readonly trace: Pick<Trace, "list" | "timeline">;
  readonly events: Pick<EventStream, "follow">;
  readonly heavyReads: HeavyReads;
  /** The configuration in effect as text, masked. */
  readonly configText: string;
  /** The last step of each answer. */
  readonly show: Show;
  readonly overview: Overview;
  readonly operations: Pick<OperationsStore, "audit">;
  /** Undefined without cells. */
  readonly cells?: Pick<Cells, "watch"> | undefined;
}

/**
 * The routes of the role `admin`: transform tests, replay, parked rows, destinations, messages, the overview and the
 * audit log.
 */
export function adminRoutes(options: AdminRouteOptions): readonly Route[] {
  const { admin, limits, run, replay, messages, parked, trace, overview, destinations, clock } = options;
  const { auth, insecure, maxTransformTimeoutMs: maxTimeoutMs } = admin;
  const { names } = destinations;
  const guard = createGuard(options, "request");
  // The routes of the specification, whose signatures cover the body.
  const byBody = createGuard(options, "body");
  const access = accessOf(insecure ? undefined : auth, "admin", "the admin routes");
  const describe = {
    ...READS,
    ...describeReplays(names, limits.maxBytes),
    ...describeDestinations(limits.maxBytes),
    ...describeParked(limits.maxBytes),
    admin_transform_test: describeTransformTest(limits.maxBytes, maxTimeoutMs),
  } satisfies Readonly<Record<string, RouteDescription>>;
  type Id = keyof typeof describe;
  const at = (id: Id, handler: RouteHandler): Route => route(id, { access, ...describe[id] }, handler);
  const json = <T>(id: Id, parse: (request: AdminRequest) => T, work: (request: T) => Promise<object>): Route =>
    at(
      id,
      (id === "admin_replay" ? byBody : guard)(
        answering(options.log, parse, async (request) => options.show(await work(request))),
      ),
    );
  const read = <T>(id: Id, parse: (request: AdminRequest) => T, work: (request: T) => Promise<object>): Route => {
    // The overview has the missing ones among its cells.
    const cells = id === "admin_overview" ? undefined : options.cells;
    // Of a large answer that many share, the making of its text is the most work.
    const textOf = async (request: T) =>
      JSON.stringify(options.show(await reads.namingMissing(cells, () => work(request))));
    const answer = (request: T, isGone: () => boolean) =>
      options.heavyReads(`${id} ${JSON.stringify(request)}`, () => textOf(request), isGone);
    const { answers } = describe[id];
    const description = { access, ...describe[id], answers: [...answers, TOO_MANY_READS] };
    return route(id, description, guard(answering(options.log, parse, answer)));
  };
  const showMessage = reads.showMessage(trace, admin.showPayloads);
  const jobs = changes.jobChanges(options.jobs, run, options.heavyReads, options.log);
  return [
    at("admin_transform_test", transformTestHandler(byBody, { evaluator: options.evaluator, maxTimeoutMs, clock })),
    json("admin_replay", changes.parseReplay(names), async ({ request, by }) => {
      // A request without a filter must not mean everything.
      if (!hasFilter(request)) throw new Refusal(400, NO_FILTER);
      return await run((signal) => replay.run(request, by, signal));
    }),
    read("admin_destinations", noParameters, async () => ({ destinations: await destinations.list() })),
    json("admin_destination_pause", changes.parsePause, async ({ name, pause, by }) => {
      requireChangeable(destinations, name);
      await destinations.pause(name, pause, by);
      return { paused: true };
    }),
    json("admin_destination_resume", changes.parseTarget, async ({ name, by }) => {
      requireChangeable(destinations, name);
      return { resumed: await destinations.resume(name, by) };
    }),
    read("admin_parked_list", readQuery(reads.PARKED_QUERY), reads.listParked(parked)),
    json("admin_parked_retry", changes.parseParked(false), ({ selection, by }) =>
      run((signal) => parked.retry(selection, by, signal)),
    ),
    json("admin_parked_discard", changes.parseParked(true), ({ selection, by, reason }) =>
      run((signal) => parked.discard(selection, by, reason, signal)),
    ),
    read("admin_messages", readQuery(reads.MESSAGES_QUERY), reads.findMessages(trace)),
    // What it shows is masked already, by the payload of the message.
    at(
      "admin_message",
      guard(
        answering(options.log, changes.targetOf, ({ id }) => reads.namingMissing(options.cells, () => showMessage(id))),
      ),
    ),
    json("admin_config", noParameters, async () => ({ text: options.configText })),
    at(
      "admin_events",
      guard(async ({ isAdmitted }, res) => options.events.follow(res, isAdmitted)),
    ),
    json(
      "admin_message_retry",
      changes.parseTarget,
      changes.messageAction(({ id, by }) => messages.retry(id, by)),
    ),
    json(
      "admin_message_discard",
      changes.parseDiscard,
      changes.messageAction(({ id, by, reason }) => messages.discard(id, by, reason)),
    ),
    json(
      "admin_message_replay",
      changes.parseMessageReplay(names),
      changes.messageAction(({ id, by, toDestination }) =>
        run((signal) => messages.replay(id, by, toDestination, signal)),
      ),
    ),
    read("admin_replays", noParameters, jobs.list),
    json("admin_replay_start", changes.parseJob(names), jobs.start),
    json("admin_replay_job", changes.parseTarget, jobs.show),
    json("admin_replay_cancel", changes.parseTarget, jobs.cancel),
    json("admin_replay_resume", changes.parseTarget, jobs.resume),
    read("admin_overview", readQuery(reads.OVERVIEW_QUERY), reads.showOverview(overview)),
    read("admin_failures", readQuery(reads.FAILURES_QUERY), reads.showFailures(overview)),
    read("admin_blocked_keys", readQuery(reads.LIMIT_QUERY), reads.showBlockedKeys(overview)),
    read("admin_audit", readQuery(reads.AUDIT_QUERY), reads.showAudit(options.operations)),
  ];
}

const noParameters = (): undefined => undefined;

/** @throws Refusal when the destination is not configured, or the table for its pause is missing */
function requireChangeable(control: DestinationControl, name: string): void {
  if (!control.isKnown(name)) {
    const known = changes.knownNames(control.names);
    throw new Refusal(404, `There is no destination ${JSON.stringify(name)} (${known})`);
  }
  if (!control.canPause) throw new Refusal(501, ERRORS.noDestinationTable);
}

import type { InboundAuth } from "../../adapters/sources/http/schema.ts";
import type { DestinationControl } from "../../core/destinations/control.ts";
import type { Evaluator } from "../../ports/evaluator.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import type { BodyLimits } from "../body.ts";
import { accessOf } from "../credentials.ts";
import { describeAdmin } from "../openapi/admin.ts";
import { type Route, route } from "../routes.ts";
import { listDestinationsHandler, pauseDestinationHandler, resumeDestinationHandler } from "./destinations.ts";
import { type ParkedOptions, parkedChangeHandler, parkedListHandler } from "./parked.ts";
import { type ReplayOptions, replayHandler } from "./replay.ts";
import { createGuard } from "./requests.ts";
import { transformTestHandler } from "./transformTrial.ts";

interface AdminRouteOptions {
  /** Section `admin`. */
  readonly admin: {
    readonly auth?: InboundAuth | undefined;
    readonly insecure: boolean;
    readonly maxTransformTimeoutMs: number;
  };
  readonly limits: BodyLimits;
  readonly evaluator: Pick<Evaluator, "evaluate">;
  readonly replay: ReplayOptions;
  readonly destinations: DestinationControl;
  readonly parked: ParkedOptions;
  readonly clock: Pick<Clock, "now">;
  readonly log: Log;
}

/** The routes of the role `admin`: transform tests, replay, parked rows, destinations. */
export function adminRoutes(options: AdminRouteOptions): readonly Route[] {
  const { admin, limits, evaluator, replay, parked, destinations, clock, log } = options;
  const { auth, insecure, maxTransformTimeoutMs } = admin;
  const guard = createGuard({ admin, limits, clock, log });
  const describe = describeAdmin({
    access: accessOf(insecure ? undefined : auth, "admin", "the admin routes"),
    destinations: replay.destinations,
    maxBodyBytes: limits.maxBytes,
    maxTransformTimeoutMs,
  });
  const testTransform = transformTestHandler(guard, { evaluator, maxTimeoutMs: maxTransformTimeoutMs, clock });
  const { retry, discard } = parked;
  return [
    route("admin_transform_test", describe.transformTest, testTransform),
    route("admin_replay", describe.replay, replayHandler(guard, replay)),
    route("admin_destinations", describe.destinations, listDestinationsHandler(guard, destinations)),
    route("admin_destination_pause", describe.pause, pauseDestinationHandler(guard, destinations)),
    route("admin_destination_resume", describe.resume, resumeDestinationHandler(guard, destinations)),
    route("admin_parked_list", describe.parkedList, parkedListHandler(guard, parked)),
    route("admin_parked_retry", describe.parkedRetry, parkedChangeHandler(guard, false, retry)),
    route("admin_parked_discard", describe.parkedDiscard, parkedChangeHandler(guard, true, discard)),
  ];
}

import type { HttpRoute } from "../routes.ts";
import { type AdminOptions, createAdmin } from "./operation.ts";
import { listDestinations, pauseDestination, resumeDestination } from "./operations/destinations.ts";
import { discardMessage, findMessages, replayMessage, retryMessage, showMessage } from "./operations/messages.ts";
import {
  followEvents,
  showAudit,
  showBlockedKeys,
  showConfig,
  showFailures,
  showOverview,
} from "./operations/overview.ts";
import { discardParked, listParked, retryParked } from "./operations/parked.ts";
import { followReplay, replayNow } from "./operations/replay.ts";
import { testTransform } from "./operations/transformTest.ts";

const OPERATIONS = [
  testTransform,
  replayNow,
  listDestinations,
  pauseDestination,
  resumeDestination,
  listParked,
  retryParked,
  discardParked,
  findMessages,
  showMessage,
  showConfig,
  followEvents,
  retryMessage,
  discardMessage,
  replayMessage,
  followReplay,
  showOverview,
  showFailures,
  showBlockedKeys,
  showAudit,
];

export function adminRoutes(options: AdminOptions): readonly HttpRoute[] {
  const admin = createAdmin(options);
  return OPERATIONS.map((routeOf) => routeOf(admin));
}

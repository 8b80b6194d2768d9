import type { Route } from "../routes.ts";
import { type AdminOptions, createAdmin } from "./operation.ts";
import { showAudit } from "./operations/audit.ts";
import { showBlockedKeys } from "./operations/blockedKeys.ts";
import { showConfig } from "./operations/config.ts";
import { pauseDestination } from "./operations/destinationPause.ts";
import { resumeDestination } from "./operations/destinationResume.ts";
import { listDestinations } from "./operations/destinations.ts";
import { followEvents } from "./operations/events.ts";
import { showFailures } from "./operations/failures.ts";
import { showMessage } from "./operations/message.ts";
import { discardMessage } from "./operations/messageDiscard.ts";
import { replayMessage } from "./operations/messageReplay.ts";
import { retryMessage } from "./operations/messageRetry.ts";
import { findMessages } from "./operations/messages.ts";
import { showOverview } from "./operations/overview.ts";
import { discardParked } from "./operations/parkedDiscard.ts";
import { listParked } from "./operations/parkedList.ts";
import { retryParked } from "./operations/parkedRetry.ts";
import { replayNow } from "./operations/replay.ts";
import { cancelReplay } from "./operations/replayCancel.ts";
import { showReplay } from "./operations/replayJob.ts";
import { resumeReplay } from "./operations/replayResume.ts";
import { startReplay } from "./operations/replayStart.ts";
import { listReplays } from "./operations/replays.ts";
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
  listReplays,
  startReplay,
  showReplay,
  cancelReplay,
  resumeReplay,
  showOverview,
  showFailures,
  showBlockedKeys,
  showAudit,
];

/** The routes of the role `admin`. */
export function adminRoutes(options: AdminOptions): readonly Route[] {
  const admin = createAdmin(options);
  return OPERATIONS.map((routeOf) => routeOf(admin));
}

import { exerciseDestinations } from "./destinations.ts";
import { exerciseExpiry } from "./expiry.ts";
import type { StoreHarness } from "./harness.ts";
import { exerciseHistory } from "./history.ts";
import { exerciseInbox } from "./inbox.ts";
import { exerciseJournal } from "./journal.ts";
import { exerciseLabels } from "./labels.ts";
import { exerciseOperations } from "./operations.ts";
import { exerciseOrder } from "./order.ts";
import { exerciseClaims, exerciseSettling } from "./outbox.ts";
import { exerciseParking } from "./parking.ts";
import { exercisePull } from "./pull.ts";
import { exerciseQueues } from "./queues.ts";
import { exerciseReceiveAgain } from "./receiveAgain.ts";
import { exerciseRedirect } from "./redirect.ts";
import { exerciseRelay } from "./relay.ts";
import { exerciseRelayedReceipts } from "./relayedReceipts.ts";
import { exerciseReplay } from "./replay.ts";
import { exerciseRetention } from "./retention.ts";
import { exerciseSchedule } from "./schedule.ts";
import { exerciseSetBackClock } from "./setBackClock.ts";

/**
 * The shared suite that every store passes.
 *
 * @param open gives a fresh store on empty tables of its own
 */
export function exerciseStore(open: () => Promise<StoreHarness>): void {
  exerciseInbox(open);
  exerciseRelay(open);
  exerciseRelayedReceipts(open);
  exerciseExpiry(open);
  exerciseSchedule(open);
  exerciseClaims(open);
  exerciseSettling(open);
  exerciseOrder(open);
  exerciseSetBackClock(open);
  exerciseQueues(open);
  exerciseHistory(open);
  exerciseJournal(open);
  exerciseParking(open);
  exerciseOperations(open);
  exerciseReplay(open);
  exerciseReceiveAgain(open);
  exerciseRedirect(open);
  exerciseLabels(open);
  exerciseRetention(open);
  exercisePull(open);
  exerciseDestinations(open);
}

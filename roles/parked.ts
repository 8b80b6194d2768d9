import { Parked } from "../src/core/finished/parked.ts";
import { sleep } from "../src/time/wait.ts";
import type { RoleContext } from "./context.ts";

/**
 * What operators do with parked rows. Keys that are free again are announced to the pollers of other processes.
 *
 * @param wakePoller wakes the poller of this process
 */
export function createParked(
  { store, redact, log }: Pick<RoleContext, "store" | "redact" | "log">,
  wakePoller: () => void = () => {},
): Parked {
  return new Parked({
    store: store.parked,
    replay: store.replay,
    onFreed() {
      wakePoller();
      store.announceOutbox();
    },
    redact,
    log,
    wait: sleep,
  });
}

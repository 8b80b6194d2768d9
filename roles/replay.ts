import { compileRoutes } from "../src/core/delivery/routes.ts";
import { Replay } from "../src/core/finished/replay.ts";
import { sleep } from "../src/time/wait.ts";
import type { RoleContext } from "./context.ts";

/**
 * The replay of finished rows, with the routes of the configuration for its filter by destination. Moved rows are announced to the pollers of
 * other processes.
 *
 * @param wakePoller wakes the poller of this process
 */
export function createReplay(
  { config, store, log }: Pick<RoleContext, "config" | "store" | "log">,
  wakePoller: () => void = () => {},
): Replay {
  const routes = compileRoutes(config.routes);
  return new Replay({
    store: store.replay,
    destinationOf: (topic) => routes.match(topic)?.destination,
    onMoved() {
      wakePoller();
      store.announceOutbox();
    },
    log,
    wait: sleep,
  });
}

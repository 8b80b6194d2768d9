import { eventually } from "./eventually.ts";
import type { History } from "./history.ts";
import type { Receiver } from "./receiver.ts";
import { merged, type Service, type ServiceOptions, type Services } from "./service.ts";
import { record } from "./traffic.ts";

/** A replica that has a delivery in flight when it is killed, however the claims fall between it and others. */
export interface DoomedReplica {
  readonly service: Service;
  /**
   * Lets the next delivery wait for its answer, and sends SIGKILL while it waits: traffic must flow. @returns the time at which the replica was gone,
   * in ms of `performance.now()`
   */
  kill(): Promise<number>;
}

/**
 * Starts a replica that delivers to `/doomed` of the receiver, which answers it only when the replica is dead once {@link DoomedReplica.kill} is
 * called. Everything else is recorded and accepted.
 */
export async function startDoomed(
  services: Services,
  receiver: Receiver,
  history: History,
  { database, config }: Pick<ServiceOptions, "database" | "config">,
): Promise<DoomedReplica> {
  let answer = (): void => {};
  const dead = new Promise<void>((resolve) => {
    answer = resolve;
  });
  let isDying = false;
  let held = 0;
  record(receiver, history, (_id, path) => {
    if (path !== "/doomed" || !isDying) return undefined;
    held += 1;
    return dead;
  });
  const own = { destinations: { receiver: { path: "/doomed" } } };
  const service = await services.start({ database, config: merged(config, own) });
  return {
    service,
    async kill() {
      isDying = true;
      await eventually(() => held > 0, { label: "a delivery of the replica that is to be killed", intervalMs: 1 });
      await service.kill();
      answer();
      return performance.now();
    },
  };
}

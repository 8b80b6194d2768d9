import { eventually } from "./eventually.ts";
import type { History } from "./history.ts";
import type { Receiver } from "./receiver.ts";
import { merged, type Service, type ServiceOptions, type Services } from "./service.ts";
import { record } from "./traffic.ts";

/** A replica that has a delivery in flight when it is killed, however the claims fall between it and others. */
export interface DoomedReplica {
  readonly service: Service;
  /**
   * Lets the first delivery behind so many acknowledged messages wait for its answer, and sends SIGKILL while it waits. Traffic
   * must flow until then.
   */
  killBehind(acknowledged: number): Promise<void>;
}

/**
 * Starts a replica that delivers to `/doomed` of the receiver, which answers it only when the replica is dead once {@link DoomedReplica.killBehind} is
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
  let diesBehind = Number.POSITIVE_INFINITY;
  let held = 0;
  record(receiver, history, (_id, path) => {
    if (path !== "/doomed" || history.acknowledgedCount < diesBehind) return undefined;
    held += 1;
    return dead;
  });
  const own = { destinations: { receiver: { path: "/doomed" } } };
  const service = await services.start({ database, config: merged(config, own) });
  return {
    service,
    async killBehind(acknowledged) {
      diesBehind = acknowledged;
      const label = "a delivery of the replica that is to be killed";
      await eventually(() => held > 0, { label, timeoutMs: 60_000, intervalMs: 1 });
      await service.kill();
      answer();
    },
  };
}

import type { History } from "./history.ts";
import type { Receiver } from "./receiver.ts";
import { merged, type Service, type ServiceOptions, type Services } from "./service.ts";
import { record, sendTraffic } from "./traffic.ts";

/** A replica that has a delivery in flight when it is killed, however the claims fall between it and others. */
export interface DoomedReplica {
  readonly service: Service;
  /** SIGKILL. @returns the time at which it was gone, in ms of `performance.now()` */
  kill(): Promise<number>;
}

/** Longer than any test lets it live. */
const HELD_MS = 300_000;
const HELD = "held";

/**
 * Starts a replica that delivers to `/doomed` of the receiver, and sends it a message whose delivery is answered only when it is dead. Everything
 * else is recorded and accepted.
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
  record(receiver, history, (id, path) => (path === "/doomed" && id.startsWith(HELD) ? dead : undefined));
  const own = { destinations: { receiver: { path: "/doomed", timeoutMs: HELD_MS } } };
  const service = await services.start({ database, config: merged(config, own) });
  await sendTraffic({ history, to: [service], keys: 1, messagesPerKey: 1, prefix: HELD });
  await receiver.received(1);
  return {
    service,
    async kill() {
      await service.kill();
      answer();
      return performance.now();
    },
  };
}

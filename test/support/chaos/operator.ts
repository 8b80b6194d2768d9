import { setTimeout as sleep } from "node:timers/promises";
import { seeded } from "../random.ts";
import type { ConfigTree } from "../service.ts";
import { between } from "./draw.ts";
import type { Replica } from "./replica.ts";

/** The routes whose rows are parked: ordinary rows, which a retry delivers, and rows that the receiver never takes. */
export const PARKING_TOPIC = "orders.transformed";
export const UNWANTED_TOPIC = "orders.unwanted";

/** For a destination whose receiver refuses some: each refusal parks its row at once. */
export const PARKS_REFUSED: ConfigTree = { deadStatuses: [503] };

const PAUSE_MS = [200, 800] as const;

/**
 * An operator who, now and then, retries all parked rows of {@link PARKING_TOPIC} and discards those of
 * {@link UNWANTED_TOPIC}, each time at another replica. What a replica cannot do just now is tried again later.
 *
 * @param signal ends it
 * @returns how many rows it retried and discarded
 */
export async function decideOnParked(
  replicas: readonly Pick<Replica, "admin">[],
  seed: number,
  signal: AbortSignal,
): Promise<{ readonly retried: number; readonly discarded: number }> {
  const random = seeded(seed + 29);
  const changed = { retried: 0, discarded: 0 };
  for (let n = 0; !signal.aborted; n += 1) {
    await sleep(between(PAUSE_MS, random()), undefined, { signal }).catch(() => {});
    const replica = replicas[Math.floor(random() * replicas.length)];
    const [what, path, body] =
      n % 4 === 3
        ? (["discarded", "discard", { topic: UNWANTED_TOPIC, reason: "nobody wants it" }] as const)
        : (["retried", "retry", { topic: PARKING_TOPIC }] as const);
    const answer = await replica?.admin(`/admin/parked/${path}`, JSON.stringify(body)).catch(() => undefined);
    if (answer?.status === 200) changed[what] += (JSON.parse(answer.text) as { changed: number }).changed;
    else if (answer !== undefined && answer.status < 500) throw new Error(`${path}: ${answer.status} ${answer.text}`);
  }
  return changed;
}

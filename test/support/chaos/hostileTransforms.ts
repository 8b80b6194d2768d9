import { setTimeout as sleep } from "node:timers/promises";
import type { ConfigTree } from "../service.ts";
import { POISON_PREFIX } from "./poison.ts";
import type { Replica } from "./replica.ts";

/**
 * What the sender of a message can make of an expression that its owner thought harmless: the size of a list decides whether it takes a microsecond or
 * for ever, the size of a number whether it takes a byte or all memory.
 */
const EXPRESSION =
  '$merge([$, {"different": $count($distinct(items)), "made": $count([1..size].{"at": $, "text": $string($)})}])';

/** The transform of {@link HOSTILE_SOURCE} and of the route of {@link HOSTILE_TOPIC}. */
export const HOSTILE_TRANSFORM: ConfigTree = { expression: EXPRESSION, onError: "Dead" };
/** A transform of ordinary messages. It may take long where the machine does. */
export const ORDINARY_TRANSFORM: ConfigTree = { expression: '$merge([$, {"transformed": true}])', timeoutMs: 5000 };

export const HOSTILE_SOURCE = "hostile";
export const HOSTILE_TOPIC = "orders.hostile";

const PER_SECOND = 4;
const ITEMS = 100_000;
const SIZE = 900_000;

/** Bodies that burn time or memory, some a second. Whatever is answered is right. */
export async function sendHostile(replica: Pick<Replica, "post">, lengthMs: number, share: number): Promise<void> {
  const slow = { items: Array.from({ length: Math.round(ITEMS * share) }, (_, n) => n), size: 1 };
  const large = { items: [], size: SIZE };
  const until = performance.now() + lengthMs;
  const posts: Promise<unknown>[] = [];
  for (let n = 0; performance.now() < until; n += 1) {
    const body = JSON.stringify({
      id: `${POISON_PREFIX}hostile-${n}`,
      key: "hostile",
      type: "http",
      ...(n % 3 === 2 ? large : slow),
    });
    posts.push(replica.post(HOSTILE_SOURCE, body).catch(() => {}));
    await sleep(1000 / PER_SECOND);
  }
  await Promise.all(posts);
}

/** Rows whose delivery burns time. $1 topic, $2 how many items. */
export const INSERT_HOSTILE = `
WITH made AS (
  INSERT INTO outbox (topic, key, payload, max_attempts)
  SELECT $1, 'poison-hostile', json_build_object('id', 'p-hostile', 'items', (SELECT json_agg(n) FROM generate_series(1, $2::int) n), 'size', 1), 2
  FROM generate_series(1, 4)
  RETURNING id
)
INSERT INTO poisoned SELECT id, 'hostile', 'ends' FROM made`;

/** @param share in (0, 1] */
export function itemsOf(share: number): number {
  return Math.round(ITEMS * share);
}

import { setTimeout as sleep } from "node:timers/promises";
import type { History } from "../history.ts";
import type { Backlog } from "./backlog.ts";
import { SOURCE, TRANSFORMED_SOURCE } from "./fleet.ts";
import { keyOf, listTypeOf } from "./lists.ts";
import type { Replica } from "./replica.ts";

/**
 * The way of the messages of a key, by their event type: `transformed` is HTTP, through transforms of source and route; `list` is several destinations over
 * HTTP.
 */
export type Way = "http" | "stream" | "transformed" | "list";

export interface SendersOptions {
  readonly history: History;
  readonly backlog: Pick<Backlog, "room">;
  /** A sender whose request fails continues with the next replica. */
  readonly to: readonly Pick<Replica, "post">[];
  /** The senders send nothing new after it; what is not acknowledged by then is still repeated until it is. */
  readonly durationMs: number;
  /** All senders together, in the whole run. */
  readonly mostMessages: number;
  readonly ways: readonly Way[];
  /** Aborts everything, when the run has failed otherwise. */
  readonly signal: AbortSignal;
}

const KEYS = 40;
/** Some keys are much busier than the others. */
const BUSY_KEYS = 4;
const PER_SECOND = 5;
const BUSY_PER_SECOND = 25;
/** How long one message may take until it is acknowledged. */
const PATIENCE_MS = 60_000;
const LONGEST_PAUSE_MS = 500;

/** Whether a sender of this file has made a message, and posted it to the service. */
export function isPosted(id: string): boolean {
  return id.startsWith("m-");
}

/** The way of a key's messages. @param lane a key, or what it is at a destination of a list */
export function wayOf(lane: string, ways: readonly Way[]): Way {
  const key = keyOf(lane);
  return ways[Number(key.slice(key.lastIndexOf("-") + 1)) % ways.length] ?? "http";
}

/** The event type of a message. */
export function typeOf(id: string, way: Way): string {
  return way === "list" ? listTypeOf(id) : way;
}

/**
 * Sends at a steady pace, each key by a sender of its own that waits for the acknowledgement of a message before it sends the next, and repeats it
 * with the same id until then.
 *
 * @throws Error when a message is refused for good, or not acknowledged in a minute
 */
export async function sendAtPace(options: SendersOptions): Promise<void> {
  const perSecond = KEYS * PER_SECOND + BUSY_KEYS * (BUSY_PER_SECOND - PER_SECOND);
  const slower = Math.max(1, (perSecond * options.durationMs) / 1000 / options.mostMessages);
  const keys = Array.from({ length: KEYS }, (_, n) => n);
  await Promise.all(
    keys.map((n) => sendKey(options, n, (slower * 1000) / (n < BUSY_KEYS ? BUSY_PER_SECOND : PER_SECOND))),
  );
}

async function sendKey(options: SendersOptions, keyNumber: number, intervalMs: number): Promise<void> {
  const { history, backlog, durationMs, ways, signal } = options;
  const key = `key-${keyNumber}`;
  const way = wayOf(key, ways);
  const source = way === "transformed" ? TRANSFORMED_SOURCE : SOURCE;
  const end = performance.now() + durationMs;
  // Not all keys at the same moments.
  let due = performance.now() + (intervalMs * keyNumber) / KEYS;
  for (let n = 0; due < end; n += 1) {
    await sleep(Math.max(0, due - performance.now()), undefined, { signal });
    await backlog.room();
    // A delayed key continues at its pace, and does not send what it missed.
    due = Math.max(due + intervalMs, performance.now());
    const id = `m-${keyNumber}-${n}`;
    const type = typeOf(id, way);
    history.sent(id, key);
    await sendUntilAcknowledged(options, source, id, JSON.stringify({ id, key, type, n }), keyNumber + n);
    history.acknowledged(id);
  }
}

async function sendUntilAcknowledged(
  { to, signal }: SendersOptions,
  source: string,
  id: string,
  body: string,
  firstReplica: number,
): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS;
  for (let tries = 0; ; tries += 1) {
    const answer = await to[(firstReplica + tries) % to.length]?.post(source, body).catch(() => undefined);
    if (answer?.status === 202 || answer?.status === 200) return;
    if (answer !== undefined && answer.status < 500) {
      throw new Error(`${id} was refused: ${answer.status} ${answer.text}`);
    }
    if (performance.now() > deadline) {
      throw new Error(`${id} was not acknowledged within ${PATIENCE_MS} ms; ${tries + 1} tries`);
    }
    await sleep(Math.min(20 * 2 ** tries, LONGEST_PAUSE_MS), undefined, { signal });
  }
}

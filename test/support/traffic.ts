import { setTimeout as sleep } from "node:timers/promises";
import { eventually } from "./eventually.ts";
import type { History } from "./history.ts";
import type { Receiver } from "./receiver.ts";
import type { HttpAnswer, Service } from "./service.ts";

export interface TrafficOptions {
  readonly history: History;
  /** Replicas; a sender whose request fails continues with the next one. */
  readonly to: readonly Pick<Service, "post">[];
  /** One sender for each key, which sends one message after another. */
  readonly keys: number;
  readonly messagesPerKey: number;
  /** Further messages follow until this is settled. */
  readonly until?: Promise<unknown>;
  /** Distinguishes it from other traffic of the same history. Default `m`. */
  readonly prefix?: string;
  /** How long one message may take until it is acknowledged, in ms. Default 45,000. */
  readonly patienceMs?: number;
  /** Senders wait while so many acknowledged messages have not come: a slow machine has no backlog. Default: any number. */
  readonly mostUndelivered?: number;
}

/**
 * Sends messages as a careful client does: each one again, with the same id, until it is acknowledged.
 *
 * @throws Error when a message is refused for good, or not acknowledged within the patience
 */
export async function sendTraffic(options: TrafficOptions): Promise<void> {
  const keys = Array.from({ length: options.keys }, (_, n) => n);
  let isAwaited = options.until !== undefined;
  const end = () => {
    isAwaited = false;
  };
  options.until?.then(end, end);
  await Promise.all(keys.map((key) => sendKey(options, key, () => isAwaited)));
}

async function sendKey(options: TrafficOptions, key: number, goesOn: () => boolean): Promise<void> {
  const { history, to, messagesPerKey, prefix = "m", patienceMs = 45_000, mostUndelivered } = options;
  let replica = key;
  for (let n = 0; n < messagesPerKey || goesOn(); n += 1) {
    if (mostUndelivered !== undefined) {
      const label = `fewer than ${mostUndelivered} acknowledged messages under way`;
      await eventually(() => history.missingCount < mostUndelivered, { timeoutMs: patienceMs, intervalMs: 10, label });
    }
    const message = { id: `${prefix}-${key}-${n}`, key: `key-${key}`, type: "created", n };
    history.sent(message.id, message.key);
    const deadline = performance.now() + patienceMs;
    for (let tries = 0; ; tries += 1) {
      const answer = await attempt(to[replica % to.length], message);
      if (answer?.status === 202 || answer?.status === 200) break;
      if (answer !== undefined && answer.status < 500) {
        throw new Error(`${message.id} was refused: ${answer.status} ${answer.text}`);
      }
      if (performance.now() > deadline) {
        throw new Error(`${message.id} was not acknowledged within ${patienceMs} ms; ${tries} tries`);
      }
      replica += 1;
      await sleep(Math.min(10 * 2 ** tries, 500));
    }
    history.acknowledged(message.id);
  }
}

async function attempt(service: Pick<Service, "post"> | undefined, message: object): Promise<HttpAnswer | undefined> {
  try {
    return await service?.post(message);
  } catch {
    return undefined; // The connection broke: the message may have been stored or not.
  }
}

/**
 * Makes a receiver write down what it gets, and accept it.
 *
 * @param onArrival called before the answer, with the id and the path of the request
 */
export function record(receiver: Receiver, history: History, onArrival?: (id: string, path: string) => unknown): void {
  receiver.answer = ({ body, url }, response) => {
    const { id } = JSON.parse(body.toString("utf8")) as { id: string };
    history.received(id, url);
    void Promise.resolve(onArrival?.(id, url)).then(() => response.writeHead(200).end());
  };
}

/** Waits until so many messages are acknowledged: the traffic flows. @throws Error when they are not in time */
export async function acknowledged(history: History, count: number, timeoutMs: number): Promise<void> {
  await eventually(() => history.acknowledgedCount >= count, { timeoutMs, label: `${count} acknowledged messages` });
}

/** Waits until everything acknowledged has come. @throws Error with the violations when it does not come in time */
export async function allDelivered(history: History, timeoutMs: number): Promise<void> {
  await eventually(() => history.missing.length === 0, { timeoutMs, intervalMs: 50 }).catch(() => {
    throw new Error(`not everything was delivered within ${timeoutMs} ms:\n${history.violations().join("\n")}`);
  });
}

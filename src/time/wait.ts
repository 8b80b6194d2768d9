import { setMaxListeners } from "node:events";
import { type Random, systemTimer, type Timer } from "./clock.ts";

/** Bounded waiting: every wait ends with its result, a signal, or a timeout that names what was waited for. */

/** A controller whose signal any number of operations may listen to; Node takes more than ten for a leak and warns. */
export function sharedController(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}

/** An operation took longer than it may. */
export class TimeoutError extends Error {
  override readonly name = "TimeoutError";
}

/** Calls back when a signal aborts, at once if it has already, until it is disposed of. */
export function onAbort(signal: AbortSignal | undefined, callback: () => void): Disposable {
  if (signal?.aborted) callback();
  else signal?.addEventListener("abort", callback, { once: true });
  return { [Symbol.dispose]: () => signal?.removeEventListener("abort", callback) };
}

const ABORTED = Symbol("aborted");

/** @returns the promise's value, or that the signal aborted first */
async function untilEither<T>(promise: Promise<T>, signal: AbortSignal): Promise<T | typeof ABORTED> {
  let abort = () => {};
  const aborted = new Promise<typeof ABORTED>((resolve) => {
    abort = () => resolve(ABORTED);
  });
  using _ = onAbort(signal, abort);
  // `race` also takes charge of a later rejection of the loser.
  return await Promise.race([aborted, promise]);
}

/**
 * Waits for a promise until a signal aborts. That does not end the operation: pass it the signal too.
 *
 * @param name what is waited for, for an abort without a reason
 * @throws the promise's error; when the signal aborts first, its reason, unchanged
 */
export async function waitOrAbort<T>(promise: Promise<T>, signal: AbortSignal, name: string): Promise<T> {
  const result = await untilEither(promise, signal);
  if (result === ABORTED) throw abortReason(signal, name);
  return result;
}

/** A missing reason (`controller.abort()` without one) gets words. */
function abortReason(signal: AbortSignal, name: string): unknown {
  const { reason } = signal;
  const bare = !(reason instanceof Error) || (reason instanceof DOMException && reason.name === "AbortError");
  return bare ? new Error(`${name} was aborted`, { cause: reason }) : reason;
}

interface Linked extends Disposable {
  /** Aborts with {@link abort}, or with the parent's reason when that aborts first. */
  readonly signal: AbortSignal;
  abort(reason?: unknown): void;
}

/** A signal that a parent aborts too, until it is disposed of: `using taken = linked(signal)`. */
export function linked(parent: AbortSignal | undefined): Linked {
  const controller = sharedController();
  // Not `AbortSignal.any`: its signals stay reachable from a long-lived parent for longer than the operation.
  const listening = onAbort(parent, () => controller.abort(parent?.reason));
  return { ...listening, signal: controller.signal, abort: (reason) => controller.abort(reason) };
}

export interface Timeout extends Disposable {
  /** Aborts with a {@link TimeoutError} when the time is over, or with the parent's reason when that aborts first. */
  readonly signal: AbortSignal;
}

/**
 * A signal with a time limit: `using limit = timeout(30_000, "outbox.claim", signal)`.
 *
 * @param name the operation, for the error: "outbox.claim timed out after 30000 ms"
 * @param parent a signal that ends the operation as well
 */
export function timeout(ms: number, name: string, parent?: AbortSignal, timer: Timer = systemTimer): Timeout {
  const link = linked(parent);
  const cancel = timer(ms, () => link.abort(new TimeoutError(`${name} timed out after ${ms} ms`)));
  return {
    signal: link.signal,
    [Symbol.dispose]() {
      cancel();
      link[Symbol.dispose]();
    },
  };
}

/**
 * Runs an operation within a time limit.
 *
 * @param operation gets a signal that aborts at the limit; the wait ends then even if the operation does not
 * @throws TimeoutError that names the operation, the parent's abort reason, or the operation's own error
 */
export async function withTimeout<T>(
  ms: number,
  name: string,
  operation: (signal: AbortSignal) => Promise<T>,
  parent?: AbortSignal,
  timer: Timer = systemTimer,
): Promise<T> {
  using limit = timeout(ms, name, parent, timer);
  return await waitOrAbort(operation(limit.signal), limit.signal, name);
}

/** Waits `ms` milliseconds. @throws the signal's reason when it aborts first */
export async function sleep(ms: number, signal?: AbortSignal, timer: Timer = systemTimer): Promise<void> {
  let cancel: (() => void) | undefined;
  const elapsed = new Promise<void>((resolve) => {
    if (!signal?.aborted) cancel = timer(ms, resolve);
  });
  try {
    await (signal === undefined ? elapsed : waitOrAbort(elapsed, signal, "sleep"));
  } finally {
    cancel?.();
  }
}

/** Waits `ms` milliseconds. @returns true when the time is over, false when the signal aborted first */
export function pause(ms: number, signal: AbortSignal): Promise<boolean> {
  return sleep(ms, signal).then(
    () => true,
    () => false,
  );
}

/** Waits for a promise or the abort of a signal. @returns the value; undefined when the signal aborted first */
export async function untilAborted<T>(promise: Promise<T> | undefined, signal: AbortSignal): Promise<T | undefined> {
  const result = await untilEither(Promise.resolve(promise), signal);
  return result === ABORTED ? undefined : result;
}

/** Waits for a promise for at most `ms`. @returns whether it resolved in time @throws the promise's error */
export async function resolvesWithin(ms: number, promise: Promise<unknown> | undefined): Promise<boolean> {
  using limit = timeout(ms, "the step");
  return (await untilEither(Promise.resolve(promise), limit.signal)) !== ABORTED;
}

/** Waits at most `ms` for a step that may never end, such as a hanging server's. A step that fails has ended too. */
export async function atMost(ms: number, step: Promise<unknown> | undefined): Promise<void> {
  await resolvesWithin(ms, step).catch(() => {});
}

/** The shortest wait, after the first failure, and the longest, in ms. */
export interface BackoffRange {
  readonly firstMs: number;
  readonly longestMs: number;
}

/**
 * The wait in ms after the n-th failure in a row: `firstMs * 2^(n-1)`, at most `longestMs`, less a random part of up to
 * half, so that replicas that lost their server together do not return together.
 */
export function backoffMs(failures: number, { firstMs, longestMs }: BackoffRange, random: Random): number {
  return Math.round(Math.min(longestMs, firstMs * 2 ** (failures - 1)) * (1 - random() / 2));
}

/** The waits between tries to reach a broker. */
const BROKER: BackoffRange = { firstMs: 100, longestMs: 5000 };

/** Counts failures in a row and gives the wait after each. */
export class Backoff {
  readonly #random: Random;
  readonly #range: BackoffRange;
  #failures = 0;

  /** @param range default: 100 ms to 5 s */
  constructor(random: Random, range: BackoffRange = BROKER) {
    this.#random = random;
    this.#range = range;
  }

  get failures(): number {
    return this.#failures;
  }

  next(): number {
    this.#failures += 1;
    return backoffMs(this.#failures, this.#range, this.#random);
  }

  /** Makes the next failure start with the shortest wait. */
  reset(): void {
    this.#failures = 0;
  }
}

import type { ClaimedRows, ClaimSettings, Pull } from "../../core/delivery/pull.ts";
import { errorText, StoreError } from "../../model/errors.ts";
import type { ClaimToken } from "../../model/rows.ts";
import type { Log, Service } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";

export interface PullWaitersOptions {
  /** Names of the sources whose rows are pulled. */
  readonly sources: readonly string[];
  readonly pull: Pick<Pull, "claim" | "release">;
  readonly clock: Pick<Clock, "monotonic">;
  readonly log: Log;
  /** Calls back after so many ms, unless the returned function is called first. */
  readonly timer?: Timer;
}

type Timer = (ms: number, callback: () => void) => () => void;

export interface WaitingClaim extends ClaimSettings {
  /** Longest wait for a message, in ms; 0 looks once. */
  readonly waitMs: number;
}

/**
 * Clients that wait for messages, a queue per source. However many wait, the database is asked by one of them at a time, the one that has
 * waited longest: one look that finds nothing has found nothing for all. Looks follow a wake, a new client, or the poll interval, which meets
 * what nobody wakes for: receipts of other replicas, leases that run out, delays that end.
 */
export class PullWaiters implements Service {
  readonly name = "pull-waiters";
  readonly #queues: ReadonlyMap<string, Queue>;

  constructor({ sources, pull, clock, log, timer = systemTimer }: PullWaitersOptions) {
    const queueOf = (source: string): Queue =>
      new Queue({
        claim: (settings) => pull.claim(source, settings),
        release: (token) => pull.release(source, token),
        clock,
        log: log.child({ source }),
        timer,
      });
    this.#queues = new Map(sources.map((source) => [source, queueOf(source)]));
  }

  /**
   * Claims messages of a source, waiting for them if need be.
   *
   * @param gone aborts when the client is gone: it then takes no messages, and what was just being claimed for it is given back
   * @returns null when there was none in time, the client is gone, or the service stops
   * @throws StoreError when the database failed
   */
  claim(source: string, request: WaitingClaim, gone: AbortSignal): Promise<ClaimedRows | null> {
    const queue = this.#queues.get(source);
    if (queue === undefined) throw new Error(`${source} is no source whose messages are pulled`);
    return queue.join(request, gone);
  }

  /** Messages of a source may have become available: a hint, for any source. */
  wake(source: string): void {
    this.#queues.get(source)?.wake();
  }

  async start(): Promise<void> {}

  /** Answers everybody who waits, at once and without messages; returns when no claim is under way any more, or at the cutoff. */
  async stop(cutoff: AbortSignal): Promise<void> {
    const stopped = Promise.all(Array.from(this.#queues.values(), (queue) => queue.stop()));
    let giveUp = (): void => {};
    const cutOff = new Promise<void>((resolve) => {
      giveUp = resolve;
      if (cutoff.aborted) resolve();
      else cutoff.addEventListener("abort", giveUp, { once: true });
    });
    await Promise.race([stopped, cutOff]);
    cutoff.removeEventListener("abort", giveUp);
  }
}

interface QueueOptions {
  readonly claim: (settings: ClaimSettings) => Promise<ClaimedRows | null>;
  readonly release: (token: ClaimToken) => Promise<void>;
  readonly clock: Pick<Clock, "monotonic">;
  readonly log: Log;
  readonly timer: Timer;
}

/** One client that waits. */
interface Waiter {
  readonly request: WaitingClaim;
  /** A look that began after it came has found nothing. */
  seen: boolean;
  /** Its time is over, or the service stops: the next look that finds nothing answers it. */
  overdue: boolean;
  /** Its client has gone while a claim was made for it. */
  left: boolean;
  /** Ends the wait; leaves the queue before. */
  readonly settle: (end: { readonly claimed: ClaimedRows | null } | { readonly error: unknown }) => void;
}

const NOTHING = { claimed: null };

/** The clients of one source, in the order in which they came. */
class Queue {
  readonly #options: QueueOptions;
  readonly #waiters = new Set<Waiter>();
  /** The one for whom a claim is under way. */
  #looking: Waiter | undefined;
  #running = false;
  #run: Promise<void> = Promise.resolve();
  #woken = false;
  #stopped = false;
  /** The present rest between two looks. */
  #resting: { readonly wakeable: boolean; readonly end: () => void } | undefined;

  constructor(options: QueueOptions) {
    this.#options = options;
  }

  join(request: WaitingClaim, gone: AbortSignal): Promise<ClaimedRows | null> {
    if (this.#stopped || gone.aborted) return Promise.resolve(null);
    return new Promise((resolve, reject) => {
      const leave = (): void => this.#leave(waiter);
      const cancel = request.waitMs === 0 ? ignore : this.#options.timer(request.waitMs, () => this.#expire(waiter));
      const waiter: Waiter = {
        request,
        seen: false,
        overdue: request.waitMs === 0,
        left: false,
        settle: (end) => {
          this.#waiters.delete(waiter);
          cancel();
          gone.removeEventListener("abort", leave);
          if ("error" in end) reject(end.error);
          else resolve(end.claimed);
          if (this.#waiters.size === 0) this.#resting?.end();
        },
      };
      gone.addEventListener("abort", leave, { once: true });
      this.#waiters.add(waiter);
      this.wake();
      if (!this.#running) this.#run = this.#serve();
    });
  }

  wake(): void {
    this.#woken = true;
    if (this.#resting?.wakeable) this.#resting.end();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    for (const waiter of [...this.#waiters]) {
      waiter.overdue = true;
      if (waiter !== this.#looking) waiter.settle(NOTHING);
    }
    await this.#run;
  }

  /** Looks for one after the other until nobody waits any more. */
  async #serve(): Promise<void> {
    this.#running = true;
    for (let [head] = this.#waiters; head !== undefined; [head] = this.#waiters) {
      this.#woken = false;
      const startedAt = this.#options.clock.monotonic();
      const found = await this.#look(head);
      if (!found) await this.#rest(this.#options.clock.monotonic() - startedAt);
    }
    this.#running = false;
  }

  /** @returns false when there was nothing to be had */
  async #look(head: Waiter): Promise<boolean> {
    const present = [...this.#waiters];
    this.#looking = head;
    try {
      const claimed = await this.#options.claim(head.request);
      if (claimed !== null && head.left) await this.#giveBack(claimed);
      if (claimed !== null) head.settle({ claimed: head.left ? null : claimed });
      else for (const waiter of present) this.#foundNothing(waiter);
      return claimed !== null;
    } catch (error) {
      // It would have failed for each of them: waiting their turn, the last one would learn it very late.
      for (const waiter of present) waiter.settle({ error });
      return true;
    } finally {
      this.#looking = undefined;
    }
  }

  #foundNothing(waiter: Waiter): void {
    waiter.seen = true;
    if (waiter.overdue || waiter.left) waiter.settle(NOTHING);
  }

  /** Until a wake or the poll interval. A look that took long is followed by a long rest, whoever wakes, so that it cannot fill the database's time. */
  async #rest(lookMs: number): Promise<void> {
    const wakeable = lookMs < LONG_LOOK_MS;
    if (this.#waiters.size === 0 || (wakeable && this.#woken)) return;
    const ms = wakeable ? POLL_MS : Math.min(LONGEST_REST_MS, Math.max(POLL_MS, lookMs * REST_AFTER_LONG_LOOK));
    await new Promise<void>((resolve) => {
      const end = (): void => {
        this.#resting = undefined;
        cancel();
        resolve();
      };
      const cancel = this.#options.timer(ms, end);
      this.#resting = { wakeable, end };
    });
  }

  #expire(waiter: Waiter): void {
    waiter.overdue = true;
    if (waiter.seen && waiter !== this.#looking) waiter.settle(NOTHING);
  }

  #leave(waiter: Waiter): void {
    waiter.left = true;
    if (waiter !== this.#looking) waiter.settle(NOTHING);
  }

  async #giveBack({ token, rows }: ClaimedRows): Promise<void> {
    try {
      await this.#options.release(token);
    } catch (error) {
      const reason = error instanceof StoreError ? error.message : errorText(error);
      this.#options.log.warn(
        { rows: rows.length, reason },
        "messages of a client that is gone come back when their lease ends",
      );
    }
  }
}

const systemTimer: Timer = (ms, callback) => {
  const handle = setTimeout(callback, ms);
  return () => clearTimeout(handle);
};

const POLL_MS = 250;
const LONG_LOOK_MS = 50;
const REST_AFTER_LONG_LOOK = 4;
const LONGEST_REST_MS = 5000;

function ignore(): void {}

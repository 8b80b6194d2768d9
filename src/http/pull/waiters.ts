import type { ClaimedRows, ClaimSettings, Pull } from "../../core/delivery/pull.ts";
import { errorText, StoreError } from "../../model/errors.ts";
import type { ClaimToken } from "../../model/rows.ts";
import type { Log, Service } from "../../ports/runtime.ts";
import { type Clock, systemTimer, type Timer } from "../../time/clock.ts";
import { waitOrAbort } from "../../time/wait.ts";

interface PullWaitersOptions {
  /** Names of the sources whose rows are pulled. */
  readonly sources: readonly string[];
  readonly pull: Pick<Pull, "claim" | "release">;
  readonly clock: Pick<Clock, "monotonic">;
  readonly log: Log;
  readonly timer?: Timer;
}

interface WaitingClaim extends ClaimSettings {
  /** Longest wait for a message, in ms; 0 claims once. */
  readonly waitMs: number;
  /** Asked before each claim for it: without credentials that hold it gets no messages. */
  readonly isAdmitted: () => boolean;
}

/**
 * Clients that wait for messages, a queue per source. However many wait, only one of them claims at a time, the one
 * that has waited longest: an empty claim is empty for all. A claim follows a wake, a new client, or the poll interval,
 * which covers what wakes nobody: receipts of other replicas, leases that run out, delays that end.
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
   * @param gone aborts when the client is gone: it then takes no messages, and a claim under way for it is released
   * @returns null when there was none in time, the client is gone or no longer admitted, or the service stops
   * @throws StoreError when the database failed
   */
  claim(source: string, request: WaitingClaim, gone: AbortSignal): Promise<ClaimedRows | null> {
    const queue = this.#queues.get(source);
    if (queue === undefined) throw new Error(`${source} is not a source whose messages are pulled`);
    return queue.join(request, gone);
  }

  /** A hint that messages of a source, of any kind, may have become available. */
  wake(source: string): void {
    this.#queues.get(source)?.wake();
  }

  async start(): Promise<void> {}

  /**
   * Answers every waiting client at once, without messages; returns when no claim is under way any more, or at the
   * cutoff.
   */
  async stop(cutoff: AbortSignal): Promise<void> {
    const stopped = Promise.all(Array.from(this.#queues.values(), (queue) => queue.stop()));
    await waitOrAbort(stopped, cutoff, "the end of the claims of pull clients").catch(() => {});
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
  /** A claim that began after it came was empty. */
  foundNothing: boolean;
  /** Its time is over, or the service stops: the next empty claim answers it. */
  isOverdue: boolean;
  /** Its client has gone while a claim ran for it. */
  isGone: boolean;
  /** Removes it from the queue and ends its wait. */
  readonly settle: (end: { readonly claimed: ClaimedRows | null } | { readonly error: unknown }) => void;
}

const NOTHING = { claimed: null };

/** The clients of one source, in the order in which they came. */
class Queue {
  readonly #options: QueueOptions;
  readonly #waiters = new Set<Waiter>();
  /** The one for whom a claim is under way. */
  #claiming: Waiter | undefined;
  #isRunning = false;
  #run: Promise<void> = Promise.resolve();
  #isWoken = false;
  #isStopped = false;
  /** The present pause between two claims. */
  #pause: { readonly isWakeable: boolean; readonly end: () => void } | undefined;

  constructor(options: QueueOptions) {
    this.#options = options;
  }

  join(request: WaitingClaim, gone: AbortSignal): Promise<ClaimedRows | null> {
    if (this.#isStopped || gone.aborted) return Promise.resolve(null);
    return new Promise((resolve, reject) => {
      const leave = (): void => this.#leave(waiter);
      const cancel = request.waitMs === 0 ? ignore : this.#options.timer(request.waitMs, () => this.#expire(waiter));
      const waiter: Waiter = {
        request,
        foundNothing: false,
        isOverdue: request.waitMs === 0,
        isGone: false,
        settle: (end) => {
          this.#waiters.delete(waiter);
          cancel();
          gone.removeEventListener("abort", leave);
          if ("error" in end) reject(end.error);
          else resolve(end.claimed);
          if (this.#waiters.size === 0) this.#pause?.end();
        },
      };
      gone.addEventListener("abort", leave, { once: true });
      this.#waiters.add(waiter);
      this.wake();
      if (!this.#isRunning) this.#run = this.#serve();
    });
  }

  wake(): void {
    this.#isWoken = true;
    if (this.#pause?.isWakeable) this.#pause.end();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const waiter of [...this.#waiters]) {
      waiter.isOverdue = true;
      if (waiter !== this.#claiming) waiter.settle(NOTHING);
    }
    await this.#run;
  }

  /** Claims for one client at a time until nobody waits any more. */
  async #serve(): Promise<void> {
    this.#isRunning = true;
    for (let [head] = this.#waiters; head !== undefined; [head] = this.#waiters) {
      this.#isWoken = false;
      const startedAt = this.#options.clock.monotonic();
      const isEmpty = await this.#claimFor(head);
      if (isEmpty) await this.#pauseAfter(this.#options.clock.monotonic() - startedAt);
    }
    this.#isRunning = false;
  }

  /** @returns whether the claim was empty */
  async #claimFor(head: Waiter): Promise<boolean> {
    if (!head.request.isAdmitted()) {
      head.settle(NOTHING);
      return false;
    }
    const present = [...this.#waiters];
    this.#claiming = head;
    try {
      const claimed = await this.#options.claim(head.request);
      if (claimed !== null && head.isGone) await this.#release(claimed);
      if (claimed !== null) head.settle({ claimed: head.isGone ? null : claimed });
      else for (const waiter of present) this.#foundNothing(waiter);
      return claimed === null;
    } catch (error) {
      // It would have failed for each of them: one after the other, the last would learn it very late.
      for (const waiter of present) waiter.settle({ error });
      return false;
    } finally {
      this.#claiming = undefined;
    }
  }

  #foundNothing(waiter: Waiter): void {
    waiter.foundNothing = true;
    if (waiter.isOverdue || waiter.isGone) waiter.settle(NOTHING);
  }

  /**
   * Until a wake or the poll interval. After a slow claim the pause is long, and no wake ends it, so that claims cannot
   * fill the database's time.
   */
  async #pauseAfter(claimMs: number): Promise<void> {
    const isWakeable = claimMs < SLOW_CLAIM_MS;
    if (this.#waiters.size === 0 || (isWakeable && this.#isWoken)) return;
    const ms = isWakeable ? POLL_MS : Math.min(LONGEST_PAUSE_MS, Math.max(POLL_MS, claimMs * PAUSE_AFTER_SLOW_CLAIM));
    await new Promise<void>((resolve) => {
      const end = (): void => {
        this.#pause = undefined;
        cancel();
        resolve();
      };
      const cancel = this.#options.timer(ms, end);
      this.#pause = { isWakeable, end };
    });
  }

  #expire(waiter: Waiter): void {
    waiter.isOverdue = true;
    if (waiter.foundNothing && waiter !== this.#claiming) waiter.settle(NOTHING);
  }

  #leave(waiter: Waiter): void {
    waiter.isGone = true;
    if (waiter !== this.#claiming) waiter.settle(NOTHING);
  }

  async #release({ token, rows }: ClaimedRows): Promise<void> {
    try {
      await this.#options.release(token);
    } catch (error) {
      const reason = error instanceof StoreError ? error.message : errorText(error);
      const message = "cannot release the messages of a client that is gone; they return when their lease ends";
      this.#options.log.warn({ rows: rows.length, reason }, message);
    }
  }
}

const POLL_MS = 250;
const SLOW_CLAIM_MS = 50;
/** In times of the slow claim. */
const PAUSE_AFTER_SLOW_CLAIM = 4;
const LONGEST_PAUSE_MS = 5000;

function ignore(): void {}

import type { ClaimedRows, ClaimSettings, Pull } from "../../core/delivery/pull.ts";
import type { Service } from "../../ports/runtime.ts";
import { systemTimer, type Timer } from "../../time/clock.ts";
import { waitOrAbort } from "../../time/wait.ts";

interface PullWaitersOptions {
  /** Names of the sources whose rows are pulled. */
  readonly sources: readonly string[];
  readonly pull: Pick<Pull, "claim">;
  readonly timer?: Timer;
}

interface WaitingClaim extends ClaimSettings {
  /** Longest wait for a message, in ms; 0 claims once. */
  readonly waitMs: number;
  /** Asked before each claim for it: without credentials that hold it gets no messages. */
  readonly isAdmitted: () => boolean;
}

/**
 * Clients that wait for messages, a queue per source. However many wait, only one of them claims at a time, the client
 * with the longest wait: an empty claim is empty for all. A claim follows a wake, a new client, or the poll interval,
 * which covers what wakes nobody: receipts of other replicas, leases that run out, delays that end.
 */
export class PullWaiters implements Service {
  readonly name = "pull-waiters";
  readonly #queues: ReadonlyMap<string, Queue>;

  constructor({ sources, pull, timer = systemTimer }: PullWaitersOptions) {
    const queueOf = (source: string) => new Queue((settings) => pull.claim(source, settings), timer);
    this.#queues = new Map(sources.map((source) => [source, queueOf(source)]));
  }

  /**
   * Claims messages of a source, waiting for them if need be.
   *
   * @param gone aborts when the client is gone: nothing is claimed for it any more
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

  /** Answers every waiting client at once, without messages; returns when no claim runs, or at the cutoff. */
  async stop(cutoff: AbortSignal): Promise<void> {
    const stopped = Promise.all(Array.from(this.#queues.values(), (queue) => queue.stop()));
    await waitOrAbort(stopped, cutoff, "the end of the claims of pull clients").catch(() => {});
  }
}

interface Waiter {
  readonly request: WaitingClaim;
  /** Its time is over: the next empty claim answers it. */
  isOverdue: boolean;
  /** Removes it from the queue and answers it. */
  readonly settle: (answer: ClaimedRows | null | Promise<never>) => void;
}

/** The clients of one source, in the order in which they came. */
class Queue {
  readonly #claim: (settings: ClaimSettings) => Promise<ClaimedRows | null>;
  readonly #timer: Timer;
  readonly #waiters = new Set<Waiter>();
  /** The one for whom a claim is under way. */
  #claiming: Waiter | undefined;
  #run: Promise<void> = Promise.resolve();
  #isRunning = false;
  #isWoken = false;
  #isStopped = false;
  /** Ends the present pause between two claims. */
  #endPause = ignore;

  constructor(claim: (settings: ClaimSettings) => Promise<ClaimedRows | null>, timer: Timer) {
    this.#claim = claim;
    this.#timer = timer;
  }

  join(request: WaitingClaim, gone: AbortSignal): Promise<ClaimedRows | null> {
    if (this.#isStopped || gone.aborted) return Promise.resolve(null);
    return new Promise((resolve) => {
      const leave = (): void => {
        if (waiter !== this.#claiming) waiter.settle(null);
      };
      const expire = (): void => {
        waiter.isOverdue = true;
        this.wake();
      };
      const cancel = request.waitMs === 0 ? ignore : this.#timer(request.waitMs, expire);
      const waiter: Waiter = {
        request,
        isOverdue: request.waitMs === 0,
        settle: (answer) => {
          this.#waiters.delete(waiter);
          cancel();
          gone.removeEventListener("abort", leave);
          resolve(answer);
          if (this.#waiters.size === 0) this.#endPause();
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
    this.#endPause();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const waiter of this.#waiters) {
      waiter.isOverdue = true;
      if (waiter !== this.#claiming) waiter.settle(null);
    }
    await this.#run;
  }

  /** Claims for one client at a time until nobody waits any more. */
  async #serve(): Promise<void> {
    this.#isRunning = true;
    for (let [head] = this.#waiters; head !== undefined; [head] = this.#waiters) {
      this.#isWoken = false;
      if (!head.request.isAdmitted()) head.settle(null);
      else if (await this.#isEmptyFor(head)) await this.#pause();
    }
    this.#isRunning = false;
  }

  /** @returns whether the claim was empty */
  async #isEmptyFor(head: Waiter): Promise<boolean> {
    const present = [...this.#waiters];
    this.#claiming = head;
    try {
      const claimed = await this.#claim(head.request);
      if (claimed !== null) head.settle(claimed);
      else for (const waiter of present) if (waiter.isOverdue) waiter.settle(null);
      return claimed === null;
    } catch (error) {
      // It would have failed for each of them: one after the other, the last would learn it very late.
      for (const waiter of present) waiter.settle(Promise.reject(error));
      return false;
    } finally {
      this.#claiming = undefined;
    }
  }

  /** Until a wake or the poll interval. */
  async #pause(): Promise<void> {
    if (this.#waiters.size === 0 || this.#isWoken) return;
    await new Promise<void>((resolve) => {
      const cancel = this.#timer(POLL_MS, resolve);
      this.#endPause = () => {
        cancel();
        resolve();
      };
    });
    this.#endPause = ignore;
  }
}

const POLL_MS = 250;

function ignore(): void {}

import { setTimeout as sleep } from "node:timers/promises";

/** A received message. */
export interface PulledMessage {
  readonly id: string;
  readonly aggregateId: string | null;
  readonly eventType: string | null;
  /** Unique in its source. */
  readonly idempotencyKey: string;
  readonly correlationId: string | null;
  /** Claims so far, this one included. */
  readonly attempt: number;
  readonly headers: Readonly<Record<string, string>>;
  /** The received text, byte for byte; over HTTP, a text that is no JSON comes as a JSON string. */
  readonly json: string;
  /** `json`, parsed; the text itself if it is no JSON. */
  readonly payload: unknown;
}

export interface Claim {
  readonly token: string;
  /** Oldest first. */
  readonly messages: readonly PulledMessage[];
}

/** Where messages come from: `sqlSource` or `httpSource`. @template T the handler's transaction; undefined over HTTP */
export interface PullSource<T> {
  claim(max: number, leaseMs: number): Promise<Claim>;
  /** @returns the ids that are still held */
  renew(claim: Claim, ids: readonly string[], leaseMs: number): Promise<ReadonlySet<string>>;
  /** Calls `handle`, and acknowledges in its transaction. @returns false if the claim was lost: nothing is written */
  handled(claim: Claim, id: string, handle: (tx: T) => Promise<void>): Promise<boolean>;
  /** The message comes again after `delayMs`, or is dead after its last attempt; later ones of its aggregate are given back. */
  retry(claim: Claim, id: string, delayMs: number, reason: string): Promise<"retry" | "dead" | "lost">;
  /** Ends the message at once; later ones of its aggregate stay held. Without it, a `DeadMessage` is an attempt. */
  dead?(claim: Claim, id: string, reason: string): Promise<"dead" | "lost">;
  /** Gives back what is left of the claim. */
  release(claim: Claim, ids: readonly string[]): Promise<void>;
}

/**
 * Thrown by a handler: the message can never be handled. Over SQL it is dead at once, and later messages of its aggregate
 * follow. Over HTTP it counts as an attempt.
 */
export class DeadMessage extends Error {
  override readonly name = "DeadMessage";
}

/** Thrown by a handler: the message comes again after this time. */
export class RetryMessage extends Error {
  override readonly name = "RetryMessage";
  readonly delayMs: number;

  constructor(delayMs: number, reason: string) {
    super(reason);
    this.delayMs = delayMs;
  }
}

export type Result = "done" | "retry" | "dead" | "lost" | "released";

/** For metrics and logs; a hook must not throw. */
export interface WorkerHooks {
  claimed?(messages: readonly PulledMessage[]): void;
  /** `dead` also if the last attempt failed. */
  ended?(message: PulledMessage, result: Result, durationMs: number): void;
  /** A claim, renewal or result that failed; the worker tries again. Default: `console.error`. */
  failed?(error: unknown): void;
}

export interface WorkerOptions<T> {
  readonly source: PullSource<T>;
  /**
   * @param context `tx`: over SQL the transaction in which the message is acknowledged; `signal` aborts when the lease is
   * lost, or when a stop does not wait any longer
   */
  readonly handler: (
    message: PulledMessage,
    context: { readonly tx: T; readonly signal: AbortSignal },
  ) => Promise<void>;
  /** Most messages at a time; default 1. */
  readonly concurrency?: number;
  /** Default 30,000 ms. */
  readonly leaseMs?: number;
  /** Before a message whose handler failed comes again, by its attempt from 1 on; default 1 s, doubled up to a minute. */
  readonly retryDelayMs?: (attempt: number) => number;
  /** Between two claims that find nothing, in ms; default 500. */
  readonly pollMs?: number;
  /** For handlers at a stop, in ms; default 30,000. */
  readonly stopTimeoutMs?: number;
  readonly hooks?: WorkerHooks;
}

export interface Worker {
  /** Claims no more, lets handlers end, and gives back the rest. Resolves when nothing runs. */
  stop(): Promise<void>;
}

/** Takes messages of a source and calls the handler for each, until it is stopped. */
export function worker<T>(options: WorkerOptions<T>): Worker {
  return new RunningWorker(options);
}

interface Own {
  readonly message: PulledMessage;
  readonly controller: AbortController;
  isLost: boolean;
}
/** What became of the later messages of an aggregate. */
type Later = "held" | "released" | "left";

interface HeldClaim {
  readonly claim: Claim;
  readonly open: Map<string, Own>;
  /** At the end of the lease, the messages are lost. */
  leaseEnd?: NodeJS.Timeout;
}

class RunningWorker<T> implements Worker {
  readonly #options: WorkerOptions<T> & { readonly concurrency: number; readonly leaseMs: number };
  readonly #stopping = new AbortController();
  readonly #heldClaims = new Set<HeldClaim>();
  readonly #running = new Set<Promise<void>>();
  readonly #loop: Promise<void>;
  #busy = 0;
  #onFree: () => void = () => {};

  constructor(options: WorkerOptions<T>) {
    this.#options = { ...options, concurrency: options.concurrency ?? 1, leaseMs: options.leaseMs ?? 30_000 };
    this.#loop = this.#claimAll();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#onFree();
    await this.#loop;
    const timer = setTimeout(() => {
      for (const held of this.#heldClaims) for (const { controller } of held.open.values()) controller.abort(STOPPED);
    }, this.#options.stopTimeoutMs ?? 30_000);
    await Promise.all(this.#running);
    clearTimeout(timer);
  }

  async #claimAll(): Promise<void> {
    const { source, concurrency, leaseMs, pollMs = 500 } = this.#options;
    const { signal } = this.#stopping;
    let waitMs = pollMs;
    while (!signal.aborted) {
      if (this.#busy >= concurrency) {
        await new Promise<void>((resolve) => {
          this.#onFree = resolve;
        });
        continue;
      }
      const sentAt = performance.now();
      try {
        const claim = await source.claim(concurrency - this.#busy, leaseMs);
        waitMs = pollMs;
        if (claim.messages.length > 0) {
          this.#hook("claimed", claim.messages);
          this.#start(claim, sentAt);
          continue;
        }
      } catch (error) {
        this.#hook("failed", error);
        waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS);
      }
      await sleep(waitMs, undefined, { signal }).catch(() => {});
    }
  }

  #start(claim: Claim, sentAt: number): void {
    const open = claim.messages.map(
      (message) => [message.id, { message, controller: new AbortController(), isLost: false }] as const,
    );
    const held: HeldClaim = { claim, open: new Map(open) };
    this.#heldClaims.add(held);
    // The lease began between the request and its answer. Over HTTP, the claim may have waited for messages before.
    this.#extend(held, Math.max(sentAt, performance.now() - this.#options.leaseMs / 3));
    this.#busy += claim.messages.length;
    const running = this.#handleAll(held).finally(() => {
      clearTimeout(held.leaseEnd);
      this.#heldClaims.delete(held);
      this.#running.delete(running);
    });
    this.#running.add(running);
  }

  /** Never rejects. */
  async #handleAll(held: HeldClaim): Promise<void> {
    const { claim, open } = held;
    const timer = setInterval(() => void this.#renew(held), this.#options.leaseMs / 3);
    const chains = new Map<string, PulledMessage[]>();
    for (const message of claim.messages) {
      const chain = message.aggregateId === null ? `id ${message.id}` : `of ${message.aggregateId}`;
      chains.set(chain, [...(chains.get(chain) ?? []), message]);
    }
    await Promise.all([...chains.values()].map((chain) => this.#handleChain(held, chain)));
    clearInterval(timer);
    const left = [...open.values()];
    const ids = left.flatMap(({ message, isLost }) => (isLost ? [] : [message.id]));
    if (ids.length > 0)
      await this.#options.source.release(claim, ids).catch((error: unknown) => this.#hook("failed", error));
    for (const { message, isLost } of left) this.#end(held, message, isLost ? "lost" : "released", 0);
  }

  /** In order, up to a message that is not handled; what is left is given back with the claim. */
  async #handleChain(held: HeldClaim, chain: readonly PulledMessage[]): Promise<void> {
    let later: Later = "held";
    for (const message of chain) {
      const own = held.open.get(message.id);
      if (later === "released") this.#end(held, message, "released", 0);
      else if (later === "left" || own === undefined || own.isLost || this.#stopping.signal.aborted) return;
      else later = await this.#handle(held, own);
    }
  }

  async #handle(held: HeldClaim, own: Own): Promise<Later> {
    const { source, handler } = this.#options;
    const { claim } = held;
    const { message, controller } = own;
    const startedAt = performance.now();
    const end = (result: "done" | "retry" | "dead" | "lost") =>
      this.#end(held, message, result, performance.now() - startedAt);
    try {
      const isHeld = await source.handled(claim, message.id, async (tx) => {
        await handler(message, { tx, signal: controller.signal });
        controller.signal.throwIfAborted();
      });
      end(isHeld ? "done" : "lost");
      return isHeld ? "held" : "left";
    } catch (error) {
      if (own.isLost) end("lost");
      // It is given back with the rest of the claim.
      if (own.isLost || controller.signal.aborted) return "left";
      try {
        // Anything may be thrown. No database stores a NUL, and the service keeps 2000 characters.
        const text = String(error instanceof Error ? error.message : error);
        const reason = text.slice(0, 2000).replaceAll("\0", "\ufffd");
        const dead = error instanceof DeadMessage ? await source.dead?.(claim, message.id, reason) : undefined;
        const result = dead ?? (await source.retry(claim, message.id, this.#delayOf(error, message.attempt), reason));
        end(result);
        return result === "lost" ? "left" : dead === undefined ? "released" : "held";
      } catch (failure) {
        // Its lease ends, and it comes again.
        this.#hook("failed", failure);
        end("lost");
        return "left";
      }
    }
  }

  #delayOf(error: unknown, attempt: number): number {
    const { retryDelayMs = (n: number) => Math.min(1000 * 2 ** (n - 1), 60_000) } = this.#options;
    return error instanceof RetryMessage ? error.delayMs : retryDelayMs(attempt);
  }

  async #renew(held: HeldClaim): Promise<void> {
    const sentAt = performance.now();
    try {
      const kept = await this.#options.source.renew(held.claim, [...held.open.keys()], this.#options.leaseMs);
      this.#extend(held, sentAt);
      this.#lose(held, kept);
    } catch (error) {
      // Until the lease is over, the next renewal may succeed.
      this.#hook("failed", error);
    }
  }

  /** A renewal that fails, or does not answer, does not move the end of the lease. */
  #extend(held: HeldClaim, sentAt: number): void {
    clearTimeout(held.leaseEnd);
    if (!this.#heldClaims.has(held)) return;
    held.leaseEnd = setTimeout(() => this.#lose(held), sentAt + this.#options.leaseMs - performance.now());
  }

  #lose(held: HeldClaim, kept?: ReadonlySet<string>): void {
    for (const [id, own] of held.open) {
      if (kept?.has(id)) continue;
      own.isLost = true;
      own.controller.abort(LOST);
    }
  }

  #end(held: HeldClaim, message: PulledMessage, result: Result, durationMs: number): void {
    if (!held.open.delete(message.id)) return;
    this.#hook("ended", message, result, durationMs);
    this.#busy -= 1;
    this.#onFree();
  }

  #hook<H extends keyof WorkerHooks>(name: H, ...given: Parameters<Required<WorkerHooks>[H]>): void {
    const { hooks = {} } = this.#options;
    if (name === "failed" && hooks.failed === undefined) console.error("a request of the worker failed:", ...given);
    (hooks[name] as ((...all: unknown[]) => void) | undefined)?.(...given);
  }
}

const LOST = new Error("the lease of this message is lost");
const STOPPED = new Error("the worker stops");
const LONGEST_WAIT_MS = 10_000;

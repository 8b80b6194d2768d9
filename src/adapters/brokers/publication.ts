import type { PublishError } from "../../model/errors.ts";
import type { InFlight, InFlightMember } from "./inFlight.ts";

/** How long a publish may take, and what ends it early. */
export interface PublicationBounds {
  /** The publishes of its destination. Whoever makes a publication adds it there; it leaves when it ends. */
  readonly inFlight: InFlight;
  readonly signal: AbortSignal;
  /** ms from the making of the publication, for everything. */
  readonly timeoutMs: number;
}

/**
 * One publish that is waiting or under way: it ends once, by the broker's answer, a fault, its deadline or its signal,
 * whichever comes first. Each kind of destination adds what it sends and the words for the end of its time.
 */
export abstract class BrokerPublication implements InFlightMember {
  readonly signal: AbortSignal;
  readonly deadline: number;
  /** The time it had, in ms. */
  readonly timeoutMs: number;
  /** Resolves or rejects with the publish. */
  readonly outcome: Promise<void>;
  /** Called when it has ended for whatever reason, so that whoever has it lets it go. */
  onEnd: () => void = () => {};
  readonly #inFlight: InFlight;
  #settle: Settle | undefined;

  constructor({ inFlight, signal, timeoutMs }: PublicationBounds) {
    this.signal = signal;
    this.timeoutMs = timeoutMs;
    this.deadline = performance.now() + timeoutMs;
    this.#inFlight = inFlight;
    this.outcome = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
  }

  /** Whether it has ended: nobody waits for it any more. */
  get settled(): boolean {
    return this.#settle === undefined;
  }

  succeed(): void {
    this.#end()?.resolve();
  }

  /** @param reason why it failed; the reason of its signal when that aborted */
  fail(reason: unknown): void {
    this.#end()?.reject(reason);
  }

  expire(): void {
    this.fail(this.expiryError());
  }

  /** Makes the error for the end of its time. */
  protected abstract expiryError(): PublishError;

  #end(): Settle | undefined {
    const settle = this.#settle;
    if (settle === undefined) return undefined;
    this.#settle = undefined;
    this.#inFlight.delete(this);
    this.onEnd();
    return settle;
  }
}

interface Settle {
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
}

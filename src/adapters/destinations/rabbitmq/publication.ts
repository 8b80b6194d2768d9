import type { PublishError } from "../../../model/errors.ts";
import type { OutboundMessage } from "../../../ports/destination.ts";
import { rabbitmqError } from "./errors.ts";
import type { Envelope } from "./properties.ts";

interface Settle {
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** One publish: ends once, by the broker's confirm, a fault, its deadline or its signal. */
export class Publication {
  readonly id: string;
  readonly routingKey: string;
  readonly body: Buffer;
  readonly envelope: Envelope;
  /** Whether it was sent on a channel that another message took from it. */
  isRepeated = false;
  /** Resolves or rejects with the publish. */
  readonly done: Promise<void>;
  /** Makes the error for the end of its time: whoever has it knows what it waits for. */
  onExpire: () => PublishError = () => rabbitmqError("timeout", "the publish took too long");
  /** Called when it has ended, so that whoever has it lets it go. */
  onEnd: () => void = () => {};
  readonly #timer: NodeJS.Timeout;
  #settle: Settle | undefined;

  /** @param timeoutMs from now, for everything */
  constructor(message: OutboundMessage, envelope: Envelope, timeoutMs: number) {
    this.id = message.id;
    this.routingKey = message.routingKey ?? "";
    this.body = Buffer.from(message.body, "utf8");
    this.envelope = envelope;
    this.done = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    this.#timer = setTimeout(() => this.reject(this.onExpire()), timeoutMs);
  }

  resolve(): void {
    this.#end()?.resolve();
  }

  /** @param error why it failed; the reason of its signal when that aborted */
  reject(error: unknown): void {
    this.#end()?.reject(error);
  }

  #end(): Settle | undefined {
    const settle = this.#settle;
    if (settle === undefined) return undefined;
    this.#settle = undefined;
    clearTimeout(this.#timer);
    this.onEnd();
    return settle;
  }
}

/**
 * The publishes under way of one destination, with one listener for each signal: a listener for each publish on a signal that many share would
 * make Node warn of a leak.
 */
export class Publications {
  readonly #bySignal = new Map<AbortSignal, { readonly members: Set<Publication>; readonly onAbort: () => void }>();

  /** Adds a publish until it has ended; it rejects with the signal's reason when that aborts. */
  async track(publication: Publication, signal: AbortSignal): Promise<void> {
    const group = this.#bySignal.get(signal) ?? this.#listen(signal);
    group.members.add(publication);
    try {
      await publication.done;
    } finally {
      group.members.delete(publication);
      if (group.members.size === 0) this.#forget(signal);
    }
  }

  /** Ends all of them. */
  rejectAll(error: PublishError): void {
    for (const { members } of [...this.#bySignal.values()]) for (const each of [...members]) each.reject(error);
  }

  #listen(signal: AbortSignal) {
    const members = new Set<Publication>();
    const onAbort = () => {
      for (const each of [...members]) each.reject(signal.reason);
    };
    const group = { members, onAbort };
    signal.addEventListener("abort", onAbort, { once: true });
    this.#bySignal.set(signal, group);
    return group;
  }

  #forget(signal: AbortSignal): void {
    const group = this.#bySignal.get(signal);
    if (group === undefined) return;
    signal.removeEventListener("abort", group.onAbort);
    this.#bySignal.delete(signal);
  }
}

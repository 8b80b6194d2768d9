import type { MsgHdrs } from "nats";
import type { OutboundMessage } from "../../../ports/destination.ts";
import { natsError } from "./errors.ts";
import { natsHeaders } from "./headers.ts";
import type { InFlight, InFlightMember } from "./inFlight.ts";
import { publishableSubject } from "./subject.ts";

/** One publish: from the call until the acknowledgement, the deadline, an abort or a fault, whichever comes first. */
export class Publication implements InFlightMember {
  readonly subject: string;
  readonly headers: MsgHdrs;
  readonly body: Buffer;
  readonly signal: AbortSignal;
  readonly deadline: number;
  readonly settled: Promise<void>;
  readonly #inFlight: InFlight;
  readonly #timeoutMs: number;
  #resolve: () => void = () => {};
  #reject: (error: unknown) => void = () => {};
  #onEnd: (() => void) | undefined;
  #pending = true;
  #phase = "waiting for a connection";

  /** @throws PublishError when the message cannot go over NATS */
  constructor(message: OutboundMessage, signal: AbortSignal, inFlight: InFlight, timeoutMs: number) {
    this.subject = publishableSubject(message.address);
    this.headers = natsHeaders(message);
    this.body = Buffer.from(message.body, "utf8");
    this.signal = signal;
    this.deadline = performance.now() + timeoutMs;
    this.#timeoutMs = timeoutMs;
    this.#inFlight = inFlight;
    this.settled = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    inFlight.add(this);
  }

  get pending(): boolean {
    return this.#pending;
  }

  /**
   * It is on its way.
   *
   * @param phase what it waits for, for the message of a timeout
   * @param onEnd called when it ends for whatever reason
   */
  sent(phase: string, onEnd?: () => void): void {
    this.#phase = phase;
    this.#onEnd = onEnd;
  }

  succeed(): void {
    if (this.#end()) this.#resolve();
  }

  interrupt(reason: unknown): void {
    if (this.#end()) this.#reject(reason);
  }

  expire(): void {
    this.interrupt(
      natsError("timeout", `the publish to ${this.subject} took longer than ${this.#timeoutMs} ms, ${this.#phase}`),
    );
  }

  #end(): boolean {
    if (!this.#pending) return false;
    this.#pending = false;
    this.#inFlight.delete(this);
    this.#onEnd?.();
    return true;
  }
}

import { InFlight, type InFlightMember } from "../../brokers/pendingPublish.ts";

/** A publish whose answer may outlast it. */
export interface SweptMember extends InFlightMember {
  /** Called every {@link SWEEP_MS} or {@link CROWDED_SWEEP_MS}; may end the member. */
  sweep(): void;
}

/**
 * The rest of an answer has between one and two sweeps to arrive. A body sent separately from its head arrives up to a
 * round trip and a delayed acknowledgement (40 ms) later, so nearly every connection is kept.
 */
const SWEEP_MS = 250;
/** The interval while a publish waits for a connection. */
const CROWDED_SWEEP_MS = 50;

/** The publishes in flight of an HTTP destination, with one timer for all sweeps. */
export class SweptInFlight extends InFlight<SweptMember> {
  readonly #connections: number;
  #sweepTimer: NodeJS.Timeout | undefined;
  #sweepsSoon = false;

  /** @param connections how many members have a connection; the others wait for one */
  constructor(connections: number) {
    super();
    this.#connections = connections;
  }

  override add(member: SweptMember): void {
    super.add(member);
    if (this.#sweepTimer === undefined || (this.#isCrowded() && !this.#sweepsSoon)) this.#armSweep();
  }

  override failAll(reason: unknown): void {
    super.failAll(reason);
    clearTimeout(this.#sweepTimer);
    this.#sweepTimer = undefined;
  }

  #isCrowded(): boolean {
    return this.members.size > this.#connections;
  }

  #armSweep(): void {
    clearTimeout(this.#sweepTimer);
    this.#sweepsSoon = this.#isCrowded();
    this.#sweepTimer = setTimeout(() => this.#sweep(), this.#sweepsSoon ? CROWDED_SWEEP_MS : SWEEP_MS).unref();
  }

  #sweep(): void {
    this.#sweepTimer = undefined;
    for (const member of [...this.members]) member.sweep();
    if (this.members.size > 0) this.#armSweep();
  }
}

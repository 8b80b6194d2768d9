import { parseDuration } from "../../model/duration.ts";
import type { DestinationStore } from "../../ports/destinationStore.ts";
import type { Log } from "../../ports/runtime.ts";
import type { OutboxStore } from "../../ports/store.ts";
import { type ConfiguredDestination, type DestinationOverview, destinationOverview } from "./overview.ts";

export interface DestinationControlOptions {
  /** Section `destinations`. */
  readonly destinations: Readonly<Record<string, ConfiguredDestination>>;
  readonly store: { readonly destinations: DestinationStore; readonly outbox: Pick<OutboxStore, "backlog"> };
  readonly log: Log;
}

/** What an operator asks for. */
export interface PauseRequest {
  readonly reason: string;
  /** Ends by itself after so many ms; undefined for never. */
  readonly forMs: number | undefined;
}

/** How long a pause is to last. Its number has few digits, so that a pattern says all of it, also in the OpenAPI document. */
export const PAUSE_DURATION = /^[1-9][0-9]{0,3}[smhd]$/;

/** Lists, pauses and resumes destinations, for the command and the admin routes; each change is logged by the process that makes it. */
export class DestinationControl {
  readonly #options: DestinationControlOptions;

  constructor(options: DestinationControlOptions) {
    this.#options = options;
  }

  get names(): readonly string[] {
    return Object.keys(this.#options.destinations);
  }

  isKnown(name: string): boolean {
    return Object.hasOwn(this.#options.destinations, name);
  }

  /** False where the table of the destinations is missing: then destinations can be listed only. */
  get canPause(): boolean {
    return this.#options.store.destinations.isAvailable;
  }

  /** @throws StoreError */
  async list(): Promise<readonly DestinationOverview[]> {
    const { destinations, store } = this.#options;
    const [shared, { byDestination }] = await Promise.all([
      this.canPause ? store.destinations.states() : [],
      store.outbox.backlog(),
    ]);
    return destinationOverview(destinations, shared, byDestination);
  }

  /** @param name one that is known. @throws StoreError */
  async pause(name: string, { reason, forMs }: PauseRequest, by: string): Promise<void> {
    const { store, log } = this.#options;
    await store.destinations.pause(name, { by, reason, forMs });
    log.info({ destination: name, by, reason, forMs }, "destination paused");
  }

  /** @param name one that is known. @returns false when it was not paused. @throws StoreError */
  async resume(name: string, by: string): Promise<boolean> {
    const { store, log } = this.#options;
    const resumed = await store.destinations.resume(name);
    log.info({ destination: name, by, resumed }, resumed ? "destination resumed" : "destination was not paused");
    return resumed;
  }
}

/**
 * Reads how long a pause is to last.
 *
 * @returns ms
 * @throws Error that says what is expected
 */
export function parsePauseDuration(text: string): number {
  const ms = PAUSE_DURATION.test(text) ? parseDuration(text) : undefined;
  if (ms === undefined) {
    throw new Error(
      "a whole number from 1 to 9999 and one of the suffixes s, m, h, d, such as 2h, is expected; leave it out for a pause without end",
    );
  }
  return ms;
}

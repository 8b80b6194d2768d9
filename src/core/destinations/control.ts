import { CellError } from "../../model/errors.ts";
import { parseDuration } from "../../model/text.ts";
import { type DestinationStore, destinationState, type SharedDestination } from "../../ports/destinationStore.ts";
import type { NewAuditEntry } from "../../ports/operationsStore.ts";
import type { Log } from "../../ports/runtime.ts";
import type { OutboxBacklog, OutboxStore } from "../../ports/store.ts";
import type { Audit } from "../operations/audit.ts";
import type { DestinationOverview } from "../operations/shown.ts";

interface DestinationControlOptions {
  /** Section `destinations`. */
  readonly destinations: Readonly<Record<string, ConfiguredDestination>>;
  readonly store: {
    readonly destinations: Pick<DestinationStore, "isAvailable" | "states" | "pause" | "resume">;
    readonly outbox: Pick<OutboxStore, "backlog">;
  };
  readonly audit: Audit;
  readonly log: Log;
}

interface PauseRequest {
  readonly reason: string;
  /** Ends by itself after this time; undefined for never. */
  readonly forMs: number | undefined;
}

/** The duration of a pause, in few digits, so that the OpenAPI document can have the whole pattern. */
export const PAUSE_DURATION = /^[1-9][0-9]{0,3}[smhd]$/;

/** Lists, pauses and resumes destinations, for the command and the admin routes; logs each change. */
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

  /** False without the table of destinations: then they can only be listed. */
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
    const { store, audit, log } = this.#options;
    const until = forMs === undefined ? "until resumed" : `for ${Math.round(forMs / 1000)} s`;
    const entry = { actor: by, action: "pause", target: name, detail: `${until}: ${reason}` };
    await this.#noting(entry, store.destinations.pause(name, { by, reason, forMs }));
    await audit.add(entry);
    log.info({ destination: name, by, reason, forMs }, "destination paused");
  }

  /** @param name one that is known. @returns false when it was not paused. @throws StoreError */
  async resume(name: string, by: string): Promise<boolean> {
    const { store, audit, log } = this.#options;
    const entry = { actor: by, action: "resume", target: name, detail: null };
    const resumed = await this.#noting(entry, store.destinations.resume(name));
    if (resumed) await audit.add(entry);
    log.info({ destination: name, by, resumed }, resumed ? "destination resumed" : "destination was not paused");
    return resumed;
  }

  /** Notes a change that was made in some cells alone, too. */
  async #noting<T>(entry: NewAuditEntry, change: Promise<T>): Promise<T> {
    try {
      return await change;
    } catch (error) {
      if (error instanceof CellError) {
        const detail = [entry.detail, error.message].filter((text) => text !== null).join("; ");
        await this.#options.audit.add({ ...entry, detail });
      }
      throw error;
    }
  }
}

/**
 * Reads the duration of a pause.
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

/** A destination as far as the overview needs its configuration. */
interface ConfiguredDestination {
  readonly kind: string;
  readonly rateLimit?: { readonly perSecond: number } | undefined;
  readonly circuitBreaker?: object | undefined;
}

/**
 * Combines the state of the configured destinations, in the order of the configuration.
 *
 * @param shared the state shared by replicas; empty where the table is missing
 */
export function destinationOverview(
  configured: Readonly<Record<string, ConfiguredDestination>>,
  shared: readonly SharedDestination[],
  backlog: OutboxBacklog["byDestination"],
): readonly DestinationOverview[] {
  const byName = new Map(shared.map((each) => [each.name, each]));
  return Object.entries(configured).map(([name, { rateLimit, circuitBreaker }]) => {
    const known = byName.get(name);
    const waiting = backlog.get(name);
    // A breaker that is no longer configured has no effect.
    const isClosed = circuitBreaker === undefined || known?.breaker.state === "closed";
    const breaker = (isClosed ? undefined : known?.breaker) ?? null;
    const pause = known?.pause ?? null;
    return {
      name,
      state: destinationState({
        paused: pause !== null,
        open: breaker?.state === "open",
        "half-open": breaker?.state === "half-open",
        slow: known?.isSlow ?? false,
      }),
      pause: pause && { by: pause.by, reason: pause.reason, since: pause.at, until: pause.until },
      breaker: breaker && {
        openings: breaker.openings,
        reason: breaker.reason,
        nextProbeMs: Math.round(breaker.remainingMs),
      },
      backlog: waiting?.pending ?? 0,
      oldestAgeMs: waiting?.oldestPendingAgeMs ?? null,
      inFlight: waiting?.processing ?? 0,
      blockedKeys: waiting?.blockedKeys ?? 0,
      rate: rateLimit === undefined ? null : { perSecond: rateLimit.perSecond, taken: known?.takenPerSecond ?? 0 },
      lastSuccessAt: known?.lastSuccessAt ?? null,
      lastFailureAt: known?.lastFailureAt ?? null,
      lastError: known?.lastError ?? null,
    };
  });
}

import type { ClaimToken } from "../../src/model/rows.ts";
import type {
  BreakerState,
  DestinationReport,
  DestinationStore,
  NewPause,
  Opening,
  RateRequest,
  SharedDestination,
} from "../../src/ports/destinationStore.ts";

interface Row {
  readonly name: string;
  pause: { readonly by: string; readonly reason: string; readonly at: number; readonly until: number | null } | null;
  state: BreakerState;
  openings: number;
  endsAt: number;
  closedAt: number;
  reason: string | null;
  probe: ClaimToken | null;
  nextAt: number;
  succeededAt: number | null;
  failure: { readonly at: number; readonly reason: string } | null;
  slowAt: number;
}

/** What replicas share about destinations, in memory and at once. The conformance suite says what a database makes of the same calls. */
export class MemoryDestinations implements DestinationStore {
  readonly isAvailable = true;
  readonly #now: () => number;
  readonly #rows = new Map<string, Row>();

  /** @param now the database's clock, in ms */
  constructor(now: () => number) {
    this.#now = now;
  }

  async states(): Promise<readonly SharedDestination[]> {
    const now = this.#now();
    return [...this.#rows.values()].map((row) => {
      const { pause } = row;
      const isPaused = pause !== null && (pause.until === null || pause.until > now);
      return {
        name: row.name,
        pause: isPaused
          ? { ...pause, at: new Date(pause.at), until: pause.until === null ? null : new Date(pause.until) }
          : null,
        breaker: {
          state: row.state,
          openings: row.openings,
          remainingMs: row.state === "closed" ? 0 : Math.max(0, row.endsAt - now),
          reason: row.reason,
        },
        lastSuccessAt: row.succeededAt === null ? null : new Date(row.succeededAt),
        lastFailureAt: row.failure === null ? null : new Date(row.failure.at),
        lastError: row.failure?.reason ?? null,
        slowAt: row.slowAt === Number.NEGATIVE_INFINITY ? null : new Date(row.slowAt),
        isSlow: now - row.slowAt < 10_000,
        takenPerSecond: 0,
      };
    });
  }

  async pause(name: string, { by, reason, forMs }: NewPause): Promise<void> {
    const at = this.#now();
    this.#row(name).pause = { by, reason, at, until: forMs === undefined ? null : at + forMs };
  }

  async resume(name: string): Promise<boolean> {
    const row = this.#row(name);
    const wasPaused = row.pause !== null;
    row.pause = null;
    return wasPaused;
  }

  async takeFromRate(name: string, { tokens, perSecond, capacity }: RateRequest): Promise<number> {
    const row = this.#row(name);
    const now = this.#now();
    row.nextAt = Math.max(row.nextAt, now - (capacity / perSecond) * 1000) + (tokens / perSecond) * 1000;
    return Math.max(0, row.nextAt - now);
  }

  async open(name: string, opening: Opening): Promise<number | undefined> {
    const row = this.#row(name);
    const now = this.#now();
    const isOurs = opening.probe === null ? row.state === "closed" : this.#isProbed(row, opening.probe);
    if (!isOurs) return undefined;
    if (row.state === "closed" && now - row.closedAt > opening.stableAfterMs) row.openings = 0;
    row.openings += 1;
    const ms = Math.min(opening.openMs * 2 ** (row.openings - 1), opening.maxOpenMs) * opening.factor;
    const openMs = Math.max(ms, opening.atLeastMs);
    Object.assign(row, { state: "open", probe: null, reason: opening.reason });
    row.endsAt = now + openMs;
    return openMs;
  }

  async takeProbe(name: string, probe: ClaimToken, leaseMs: number): Promise<boolean> {
    const row = this.#row(name);
    if (row.state === "closed" || row.endsAt > this.#now()) return false;
    Object.assign(row, { state: "half-open", probe, endsAt: this.#now() + leaseMs });
    return true;
  }

  async renewProbe(name: string, probe: ClaimToken, leaseMs: number): Promise<boolean> {
    const row = this.#row(name);
    if (!this.#isProbed(row, probe)) return false;
    row.endsAt = this.#now() + leaseMs;
    return true;
  }

  async close(name: string, probe: ClaimToken): Promise<boolean> {
    const row = this.#row(name);
    if (!this.#isProbed(row, probe)) return false;
    Object.assign(row, { state: "closed", probe: null, reason: null, closedAt: this.#now() });
    return true;
  }

  async returnProbe(name: string, probe: ClaimToken, waitMs: number): Promise<boolean> {
    const row = this.#row(name);
    if (!this.#isProbed(row, probe)) return false;
    Object.assign(row, { state: "open", probe: null, endsAt: this.#now() + waitMs });
    return true;
  }

  async report(reports: readonly DestinationReport[]): Promise<void> {
    const now = this.#now();
    for (const { name, succeededAgoMs, failure, isSlow } of reports) {
      const row = this.#row(name);
      if (succeededAgoMs !== undefined) row.succeededAt = Math.max(row.succeededAt ?? 0, now - succeededAgoMs);
      if (failure !== undefined) row.failure = { at: now - failure.agoMs, reason: failure.reason };
      if (isSlow) row.slowAt = now;
    }
  }

  #isProbed(row: Row, probe: ClaimToken): boolean {
    return row.state === "half-open" && row.probe === probe;
  }

  #row(name: string): Row {
    let row = this.#rows.get(name);
    if (row === undefined) {
      row = {
        name,
        pause: null,
        state: "closed",
        openings: 0,
        endsAt: 0,
        closedAt: Number.NEGATIVE_INFINITY,
        reason: null,
        probe: null,
        nextAt: Number.NEGATIVE_INFINITY,
        succeededAt: null,
        failure: null,
        slowAt: Number.NEGATIVE_INFINITY,
      };
      this.#rows.set(name, row);
    }
    return row;
  }
}

import { type ClaimToken, type Consumption, type MessageId, reasonTooLarge } from "../../model/rows.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { PullClaim, PulledRow, PullRejection, PullStore } from "../../ports/pullStore.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import type { Redact } from "../redaction/redact.ts";

interface PullOptions {
  readonly store: PullStore;
  /** Claims after which a row is dead (`inbox.pull.maxAttempts`). */
  readonly maxAttempts: number;
  readonly newToken: () => ClaimToken;
  readonly redact: Redact;
  readonly metrics: Pick<Metrics, "claimRows" | "claimDuration" | "claimsLost" | "inboxDead">;
  readonly clock: Pick<Clock, "monotonic">;
  readonly log: Log;
}

export interface ClaimSettings {
  readonly max: number;
  readonly leaseMs: number;
}

/** Rows under a client's claim, oldest first. */
export interface ClaimedRows {
  readonly token: ClaimToken;
  readonly leaseMs: number;
  readonly rows: readonly PulledRow[];
}

export interface PullResult<T> {
  readonly result: T;
  /** Requested ids no longer held under the token; empty for a request about the whole claim. */
  readonly lost: readonly MessageId[];
  readonly held: boolean;
}

export function pullSourcesOf(sources: Readonly<Record<string, { readonly consumption: Consumption }>>) {
  return Object.keys(sources).filter((name) => sources[name]?.consumption === "pull");
}

/** What a pull client does with the rows of a source (design, "Pull rows"). All methods reject with `StoreError`. */
export class Pull {
  readonly #options: PullOptions;

  constructor(options: PullOptions) {
    this.#options = options;
  }

  /** Claims rows of a source; null when none is available now. */
  async claim(source: string, { max, leaseMs }: ClaimSettings): Promise<ClaimedRows | null> {
    const { store, maxAttempts, newToken, metrics, clock } = this.#options;
    let limit = max;
    for (;;) {
      const startedAt = clock.monotonic();
      const request = { source, token: newToken(), limit, maxBytes: MAX_CLAIM_BYTES, leaseMs, maxAttempts };
      const { token, rows, dead } = await store.claim(request);
      this.#logDead(source, dead, "maxAttempts claims without an acknowledgement");
      if (rows.length > 0) {
        metrics.claimRows("pull", rows.length);
        metrics.claimDuration("pull", (clock.monotonic() - startedAt) / 1000);
        const sendable = await this.#sendable({ source, token }, rows);
        if (sendable.length > 0) return { token, leaseMs, rows: sendable };
        // The database writes each of the rows that it looks at: half a second for one of 64 MiB.
        limit = 1;
      } else if (dead.length === 0) return null;
      // Dead rows may have filled the claim and hidden the rows behind them.
    }
  }

  /** Makes dead what no answer can hold, which gives back the rows behind it. @returns the other rows */
  async #sendable(claim: Omit<PullClaim, "ids">, rows: readonly PulledRow[]): Promise<readonly PulledRow[]> {
    const gone = new Set<MessageId>();
    for (const { id, tooLarge } of rows) {
      if (tooLarge === null) continue;
      const reason = reasonTooLarge(tooLarge);
      const rejection = { delayMs: 0, reason, maxAttempts: 0 };
      const { dead, released } = await this.#options.store.reject({ ...claim, ids: [id] }, rejection);
      this.#logDead(claim.source, dead, reason);
      for (const each of [id, ...released]) gone.add(each);
    }
    return rows.filter(({ id }) => !gone.has(id));
  }

  async acknowledge(claim: PullClaim): Promise<PullResult<readonly MessageId[]>> {
    return this.#outcome(claim, await this.#options.store.acknowledge(claim), (ids) => ids);
  }

  /** The client could not process the rows. @param delayMs until they are available again @param error its reason */
  async reject(claim: PullClaim, delayMs: number, error: string | null): Promise<PullResult<PullRejection>> {
    const { store, maxAttempts, redact } = this.#options;
    const redacted = error === null ? "" : redact(error);
    const reason = redacted === "" ? null : redacted;
    const rejection = await store.reject(claim, { delayMs, reason, maxAttempts });
    this.#logDead(claim.source, rejection.dead, reason ?? "rejected by its client on the last of maxAttempts claims");
    return this.#outcome(claim, rejection, ({ retried, dead }) => [...retried, ...dead]);
  }

  /** @param leaseMs from now on */
  async extend(claim: PullClaim, leaseMs: number): Promise<PullResult<readonly MessageId[]>> {
    return this.#outcome(claim, await this.#options.store.extend(claim, leaseMs), (ids) => ids);
  }

  #outcome<T>(claim: PullClaim, result: T, idsOf: (result: T) => readonly MessageId[]): PullResult<T> {
    const changed = new Set(idsOf(result));
    const lost = (claim.ids ?? []).filter((id) => !changed.has(id));
    if (lost.length > 0) {
      this.#options.metrics.claimsLost("pull", lost.length);
      this.#options.log.info({ source: claim.source, lost: lost.length }, "pull claim expired or superseded");
    }
    return { result, lost, held: changed.size > 0 };
  }

  #logDead(source: string, dead: readonly MessageId[], reason: string): void {
    const { metrics, log } = this.#options;
    for (const id of dead) {
      metrics.inboxDead("pull");
      log.warn({ id, source, reason }, "inbox row is dead");
    }
  }
}

/** Payload bytes of one claim: an answer is built in memory. */
const MAX_CLAIM_BYTES = 4 * 1024 * 1024;

import type { ClaimToken, Headers, MessageId, TooLarge } from "../model/rows.ts";

/** Inbox rows with `consumption` `pull` for a pull client (design, "Pull rows"). */
export interface PullStore {
  /**
   * Claims pending pull rows of one source, oldest first, each with a token and the request's lease, and counts the
   * attempt. The claimed rows of one aggregate are a run: no unfinished row of it comes before or between them. A row
   * whose lease ended may be claimed again; after `maxAttempts` claims it becomes `dead` instead.
   */
  claim(request: PullClaimRequest): Promise<PullClaimResult>;

  /** Marks rows of a claim `processed`; `ids` null means all. @returns the ids that were still held under it */
  acknowledge(claim: PullClaim): Promise<readonly MessageId[]>;

  /**
   * Releases rows of a claim: due again in `delayMs` with the reason stored, or `dead` when the attempts are used up.
   * Later rows of their aggregates under the same claim are released too, uncounted, so that they cannot overtake.
   */
  reject(claim: PullClaim, options: PullRejectionOptions): Promise<PullRejection>;

  /** Extends the leases of a claim's rows that still run, to `leaseMs` from now. @returns the ids of these rows */
  extend(claim: PullClaim, leaseMs: number): Promise<readonly MessageId[]>;
}

export interface PullClaimRequest {
  readonly source: string;
  readonly token: ClaimToken;
  readonly limit: number;
  /** Payload bytes at which a claim stops early; the first row is always claimed. */
  readonly maxBytes: number;
  readonly leaseMs: number;
  readonly maxAttempts: number;
}

export interface PullClaimResult {
  /** Of these rows alone: the request's, or another one. */
  readonly token: ClaimToken;
  readonly rows: readonly PulledRow[];
  /** Rows without attempts left, which this call made `dead`. */
  readonly dead: readonly MessageId[];
}

export interface PullClaim {
  readonly source: string;
  readonly token: ClaimToken;
  readonly ids: readonly MessageId[] | null;
}

export interface PullRejectionOptions {
  readonly delayMs: number;
  /** Stored with the row; null keeps the last one. */
  readonly reason: string | null;
  readonly maxAttempts: number;
}

export interface PullRejection {
  readonly retried: readonly MessageId[];
  readonly dead: readonly MessageId[];
  readonly released: readonly MessageId[];
}

export interface PulledRow {
  readonly id: MessageId;
  readonly tooLarge: TooLarge | null;
  readonly aggregateId: string | null;
  readonly eventType: string | null;
  readonly idempotencyKey: string;
  readonly correlationId: string | null;
  /** Claims so far, this one included. */
  readonly attempt: number;
  /** Null if the time in an owner's table is missing or beyond what a `Date` holds. */
  readonly createdAt: Date | null;
  readonly headers: Headers;
  readonly payload: string;
}

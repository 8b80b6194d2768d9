import type { ClaimToken, MessageId } from "./rows.ts";

/** What became of one received message; each kind maps to one HTTP answer, and to "acknowledge" for a broker. */
export type ReceiveOutcome =
  | { readonly kind: "stored"; readonly id: MessageId }
  | { readonly kind: "duplicate" }
  | { readonly kind: "filtered" }
  /** The message can never be accepted as it is; `reason` is written for its sender and holds no secret. */
  | { readonly kind: "rejected"; readonly rejection: Rejection; readonly reason: string }
  /** The database did not take it; the sender may send it again. */
  | { readonly kind: "unavailable"; readonly reason: string }
  /** Its transform could not be run now, so that nothing is stored; the sender may send it again. */
  | { readonly kind: "busy"; readonly reason: string };

/** `unstorable`: the database refuses the row's data for good. */
export const REJECTIONS = ["invalid_json", "extraction_failed", "transform_failed", "unstorable"] as const;
export type Rejection = (typeof REJECTIONS)[number];

/** What the store made of one row of an insert. */
export type InsertOutcome =
  | { readonly kind: "stored" }
  | { readonly kind: "duplicate" }
  /**
   * The database refuses this row alone: its data can never be held (for example text that a `jsonb` payload column cannot hold), or, where
   * `mayPassLater`, a trigger or a policy of the owner turned it away, which may decide otherwise another time.
   */
  | { readonly kind: "refused"; readonly reason: string; readonly mayPassLater?: boolean };

/** How one claimed outbox row ended (spec, "States and transitions"; design, "Attempts"). */
export type Settlement = {
  readonly id: MessageId;
  readonly claimToken: ClaimToken;
  /** Name of the claim scope that looks for the row alone, where there is one. */
  readonly scope?: string | undefined;
  /** Where the row goes, of a retry: scopes may change until it is due. */
  readonly destination?: string | undefined;
} & (
  | { readonly kind: "sent" }
  /** Failed with attempts left: `attempt` grows by one, the row is due again in `delayMs` of the database's clock. */
  | { readonly kind: "retry"; readonly delayMs: number; readonly reason: string }
  /** Failed for good, and counted: the row stays first of its key until an operator retries or discards it. */
  | { readonly kind: "park"; readonly reason: string }
  /** Failed for good. `attempted` tells whether a delivery was tried, and so counted. */
  | { readonly kind: "dead"; readonly attempted: boolean; readonly reason: string }
  /** Given back untouched: not tried, not counted. */
  | { readonly kind: "release" }
);

import { randomUUID } from "node:crypto";
import type {
  AttemptRecord,
  ClaimedRow,
  ClaimToken,
  MessageId,
  NewInboxRow,
  Outcome,
} from "../../../src/model/rows.ts";
import type { ReplayScope } from "../../../src/ports/finishedRows.ts";
import {
  type ClaimQueues,
  type ClaimRequest,
  NO_DESTINATION,
  type RelayRequest,
  type Store,
  type TopicRouting,
} from "../../../src/ports/store.ts";
import type { Clock } from "../../../src/time/clock.ts";
import type { ManualClock } from "../../support/recorders.ts";

/** What a database brings to the shared suite: a store on empty tables of its own, and a look behind it. */
export interface StoreHarness extends AsyncDisposable {
  readonly store: Store;
  /** The scope of a replay, if it has a form of its own. */
  readonly scope?: ReplayScope;
  /** The clock given to the store; advancing it makes its hints go stale. */
  readonly clock: ManualClock;
  /** Another replica: a store of its own (own pool, own hints) on the same tables. Without a clock its time stands still. */
  replica(clock?: Clock): Promise<Store>;
  /** Inserts as an application does: only the columns given. Rows come out with rising `sequence`. */
  insertOutbox(rows: readonly ApplicationRow[]): Promise<readonly MessageId[]>;
  outboxRows(): Promise<readonly OutboxRecord[]>;
  /** The labels of the rows of the outbox, in the order of `sequence`. */
  labels(): Promise<readonly { readonly destination: string | null; readonly routes: string | null }[]>;
  inboxRows(): Promise<readonly InboxRecord[]>;
  /** Moves every lease into the past. */
  expireLeases(): Promise<void>;
  /** Makes every pending row due. */
  makeDue(): Promise<void>;
  /** Makes the time to live of each row of both tables that has one end a second ago. */
  expireMessages(): Promise<void>;
  /** Sets one outbox row back to pending with attempt 0, as a replay does. */
  reset(id: MessageId): Promise<void>;
  /** Deletes outbox rows, as an application may. */
  removeOutbox(ids: readonly MessageId[]): Promise<void>;
  /** Makes outbox rows look finished: `updated_at` and, if given, `created_at` so many ms ago. */
  finishOutbox(
    ids: readonly MessageId[],
    as: { readonly state: "sent" | "dead"; readonly finishedMsAgo?: number; readonly createdMsAgo?: number },
  ): Promise<void>;
  /** Makes inbox rows look finished, received so many ms ago. */
  finishInbox(
    ids: readonly MessageId[],
    as: { readonly state: "processed" | "dead"; readonly receivedMsAgo?: number },
  ): Promise<void>;
  /** Moves every lease of a pull client into the past. */
  expirePullLeases(): Promise<void>;
  /** Makes every pending inbox row due. */
  makeInboxDue(): Promise<void>;
  /** Lets `ms` pass for every row of the outbox, none of them parked; less than 0 is what they see of a clock that has been put back. */
  ageOutbox(ms: number): Promise<void>;
  /** Lets `ms` pass for all that is noted of destinations; less than 0 is what they see of a clock that has been put back. */
  ageDestinations(ms: number): Promise<void>;
}

/** Of the stores of the suite: these topics go to the destination of their name, the empty one to `empty`. */
const ROUTES = ["orders", "bills", "stuck", "excluded", "a", "A", "a ", "b", "c", ""].map((topic) => ({
  topicPattern: topic,
  destination: topic === "" ? "empty" : topic,
}));
/** Room for these destinations, and the routes of the suite. */
export function queuesOf(destinations: readonly string[], room = 100): ClaimQueues {
  return { room: new Map([...destinations, NO_DESTINATION].map((each) => [each, room])), routing: ROUTING };
}

export const ROUTING: TopicRouting = {
  destinationOf: (topic) => ROUTES.find(({ topicPattern }) => topicPattern === topic)?.destination,
  listOf: () => undefined,
  hash: "hash",
};

export interface ApplicationRow {
  readonly topic?: string;
  readonly key?: string | null;
  readonly payload?: string;
  readonly maxAttempts?: number;
  /** Due this many ms from now. */
  readonly dueInMs?: number;
  readonly destination?: string;
  /** The hash of the routes that chose it. */
  readonly routes?: string;
}

/** Headers that an application might write by hand, by topic. */
export const ODD_HEADERS: Readonly<Record<string, string>> = {
  "odd-headers": '{"n": 1, "o": {"a": true}, "gone": null}',
  "array-headers": "[1, 2]",
};

export interface OutboxRecord {
  readonly id: MessageId;
  /** ms ago, by the database's clock. */
  readonly updatedMsAgo: number;
  readonly createdMsAgo: number;
  readonly sequence: number;
  readonly topic: string;
  readonly key: string | null;
  readonly payload: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly state: string;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly claimToken: string | null;
  /** ms from the database's now; negative in the past. */
  readonly leaseInMs: number | null;
  readonly dueInMs: number;
  readonly lastError: string | null;
}

export interface InboxRecord {
  readonly id: MessageId;
  readonly source: string;
  readonly idempotencyKey: string;
  readonly payload: string;
  readonly state: string;
  readonly consumption: string;
  readonly processed: boolean;
  readonly aggregateId: string | null;
  readonly attempt: number;
  readonly claimToken: string | null;
  /** ms from the database's now; negative in the past. */
  readonly leaseInMs: number | null;
  readonly dueInMs: number;
  readonly lastError: string | null;
  readonly headers: Readonly<Record<string, string>>;
}

let made = 0;

/** A received message with everything filled in. */
export function inboxRow(overrides: Partial<NewInboxRow> = {}): NewInboxRow {
  made += 1;
  return {
    id: orderedId(made),
    source: "orders",
    idempotencyKey: `key-${made}`,
    aggregateId: null,
    eventType: "created",
    payload: `{"n":${made}}`,
    state: "pending",
    consumption: "push",
    correlationId: `correlation-${made}`,
    headers: {},
    lastError: null,
    ...overrides,
  };
}

/** Ids that rise, as the service's own do. */
function orderedId(n: number): MessageId {
  const hex = n.toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7${randomUUID().slice(15)}` as MessageId;
}

export function claimRequest(overrides: Partial<ClaimRequest> = {}): ClaimRequest {
  return {
    limit: 100,
    maxBytes: 1_000_000,
    token: randomUUID() as ClaimToken,
    heldTokens: [],
    leaseMs: 30_000,
    claimTimeoutMs: 300_000,
    queues: queuesOf(
      ROUTES.map(({ destination }) => destination),
      overrides.limit,
    ),
    ...overrides,
  };
}

/** Claims until there are rows, or no more are due: a claim may only label rows, or pass others. */
export async function claimSome({ outbox }: Pick<Store, "outbox">, overrides: Partial<ClaimRequest> = {}) {
  for (;;) {
    const claimed = await outbox.claim(claimRequest(overrides));
    if (claimed.rows.length > 0 || !claimed.more) return claimed;
  }
}

export function relayRequest(overrides: Partial<RelayRequest> = {}): RelayRequest {
  return {
    limit: 100,
    topics: { orders: ["orders.", ""] },
    maxAttempts: 5,
    droppedHeaders: { names: ["host", "x-source"], prefixes: ["accept"] },
    ...overrides,
  };
}

export const sent = (row: ClaimedRow): Outcome => ({ id: row.id, claimToken: row.claimToken, kind: "sent" });
export const released = (row: ClaimedRow): Outcome => ({ id: row.id, claimToken: row.claimToken, kind: "release" });
export const failed = (row: ClaimedRow, delayMs = 60_000): Outcome => ({
  id: row.id,
  claimToken: row.claimToken,
  kind: "retry",
  delayMs,
  reason: "status 500",
});
export const parked = (row: ClaimedRow): Outcome => ({
  id: row.id,
  claimToken: row.claimToken,
  kind: "park",
  reason: "status 500",
});
export const died = (row: ClaimedRow, attempted = true): Outcome => ({
  id: row.id,
  claimToken: row.claimToken,
  kind: "dead",
  attempted,
  reason: "no route",
});

const RECORD: AttemptRecord = {
  attempt: 1,
  destination: "billing",
  replica: "host-1",
  code: "status_5xx",
  status: "503",
  durationMs: 12.6,
};

/** The same outcome, with the record of its attempt. */
export const recorded = (outcome: Outcome, record: Partial<AttemptRecord> = {}): Outcome => ({
  ...outcome,
  record: { ...RECORD, ...record },
});

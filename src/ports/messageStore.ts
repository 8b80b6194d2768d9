import type { Consumption, Headers, MessageId, OrderedRow, OutboxState } from "../model/rows.ts";

/**
 * Finds messages in both tables, for operators. Every call reads by an index, or a bounded number of rows. The outbox
 * row of a received message has the id of its inbox row.
 */
export interface MessageStore {
  /** The rows of one message. @param withPayload whether payloads are read; else they are null */
  get(id: MessageId, withPayload: boolean): Promise<StoredMessage>;

  byIdempotencyKey(sources: readonly string[], key: string): Promise<readonly MessageId[]>;

  /**
   * The first unfinished row of its key that an outbox row waits for; undefined if none.
   *
   * @param destination of the row; null if unknown
   */
  rowBefore(id: MessageId, destination: string | null): Promise<RowBefore | undefined>;

  /**
   * The transaction that locks a row of this message, in either table. Undefined if none does or the database does not
   * tell: SQL Server, and locks that several transactions share.
   */
  lockHolder(id: MessageId): Promise<LockHolder | undefined>;

  /**
   * Outbox rows from the newest on that match: reads up to `limit` rows, however few match.
   *
   * @param before `next` of the page before; null from the newest on
   */
  outboxPage(search: MessageSearch, before: string | null, limit: number): Promise<MessagePage>;

  inboxPage(search: InboxSearch, before: string | null, limit: number): Promise<MessagePage>;
}

/** All that is given must hold. Texts are compared letter for letter; instants are ISO-8601 text in UTC, exclusive. */
export interface MessageSearch {
  readonly key?: string | undefined;
  readonly topic?: string | undefined;
  /** By the routes that the store was made with. */
  readonly destination?: string | undefined;
  readonly correlationId?: string | undefined;
  readonly state?: OutboxState | undefined;
  readonly createdAfter?: string | undefined;
  readonly createdBefore?: string | undefined;
}

interface InboxSearch extends Pick<MessageSearch, "correlationId" | "createdAfter" | "createdBefore"> {
  readonly source?: string | undefined;
  readonly aggregateId?: string | undefined;
  readonly state?: InboxState | undefined;
  /** Only rows that have no outbox row: they wait, or are dead. */
  readonly isUnrelayed?: boolean | undefined;
  /** Pending pull rows are read by source. */
  readonly pullSources: readonly string[];
}

type InboxState = "pending" | "processed" | "dead";

export interface MessagePage {
  readonly rows: readonly FoundMessage[];
  /** Null when this was the last page. */
  readonly next: string | null;
}

export interface FoundMessage {
  readonly id: MessageId;
  readonly cell?: string | undefined;
  readonly table: "inbox" | "outbox";
  /** The position from which the page after this row continues; empty if the row was not found by a page. */
  readonly position: string;
  /** Null if the time in an owner's table is missing or beyond what a `Date` holds. */
  readonly createdAt: Date | null;
  /** Of inbox rows. */
  readonly source: string | null;
  /** The topic of an outbox row, the event type of an inbox row. */
  readonly topic: string | null;
  /** The key of an outbox row, the aggregate id of an inbox row. */
  readonly key: string | null;
  readonly state: OutboxState | InboxState;
  /** Of an outbox row, by the routes; null without one, and of a message that was expanded. */
  readonly destination: string | null;
  /** The number of destinations that the message was expanded to; null of any other row. */
  readonly expandedTo: number | null;
  /** The message of a delivery; null of any other row. */
  readonly messageId: MessageId | null;
  readonly attempt: number;
  /** The beginning of the reason, 200 characters at most. */
  readonly lastError: string | null;
}

export interface StoredMessage {
  /** The time of the database, by which rows become due. */
  readonly now: Date;
  readonly cell?: string | undefined;
  readonly inbox: InboxMessage | undefined;
  /** A delivery has the payload and the headers of its message. */
  readonly outbox: OutboxMessage | undefined;
  /** Of a message that was expanded, in the order of its destinations; without deleted ones. */
  readonly deliveries: readonly StoredDelivery[];
}

export interface StoredDelivery {
  readonly id: MessageId;
  readonly destination: string | null;
  readonly state: OutboxState | "parked";
  readonly attempt: number;
  readonly lastError: string | null;
  readonly updatedAt: Date | null;
}

interface MessageParts {
  readonly id: MessageId;
  readonly attempt: number;
  readonly createdAt: Date | null;
  /** Not before this time; null counts as due. */
  readonly scheduledAt: Date | null;
  readonly claimedAt: Date | null;
  /** Null if no claim has a lease. */
  readonly leaseUntil: Date | null;
  readonly isClaimed: boolean;
  readonly lastError: string | null;
  readonly headers: Headers;
  readonly payload: string | null;
}

export interface InboxMessage extends MessageParts {
  readonly source: string;
  readonly idempotencyKey: string;
  readonly aggregateId: string | null;
  readonly eventType: string | null;
  readonly state: InboxState;
  readonly consumption: Consumption;
  readonly correlationId: string | null;
  readonly processedAt: Date | null;
}

export interface OutboxMessage extends MessageParts, OrderedRow {
  readonly state: OutboxState;
  readonly isParked: boolean;
  /** Pending, and not due yet; `infinity` has no `scheduledAt` here. */
  readonly isAhead: boolean;
  readonly maxAttempts: number;
  readonly updatedAt: Date | null;
  /** The destinations that the message was expanded to; null of any other row. */
  readonly expandedTo: readonly string[] | null;
  readonly messageId: MessageId | null;
}

/** A row that holds back the later rows of its key. */
export interface RowBefore {
  readonly id: MessageId;
  readonly state: OutboxState;
  readonly isParked: boolean;
  readonly attempt: number;
  readonly scheduledAt: Date | null;
}

export interface LockHolder {
  /** Null for a prepared transaction, which has no server process. */
  readonly pid: number | null;
  readonly user: string | null;
  readonly application: string | null;
  /** As the database calls it, such as `idle in transaction`; null if this user may not see it. */
  readonly state: string | null;
  readonly stateMs: number | null;
  /** The user of this process, to whom the right to see it can be granted. */
  readonly seenBy: string;
}

import { deliveryId, destinationsIn } from "../../../model/deliveries.ts";
import { StoreError } from "../../../model/errors.ts";
import { type MessageId, PARKED_UNTIL } from "../../../model/rows.ts";
import type {
  FoundMessage,
  InboxMessage,
  MessagePage,
  MessageSearch,
  MessageStore,
  OutboxMessage,
  StoredDelivery,
} from "../../../ports/messageStore.ts";
import type { TopicRouting } from "../../../ports/store.ts";
import {
  dateOf,
  headersOf,
  idsOf,
  type Named,
  numberOf,
  type Row,
  routedRow,
  type StatementRunner,
  textOf,
  type Values,
} from "./rows.ts";

/** Pages answer a row for each match, and `looked_at` and `last` in one at least. */
export type MessageStatements<S> = Named<S, "inboxRow" | "outboxRow" | "deliveries"> &
  Named<S, "byIdempotencyKey" | "rowBefore" | "outboxPage" | "inboxPage"> & {
    /** The transaction that wrote itself into a row, and who runs it; undefined if the database does not tell. */
    readonly locks: Named<S, "ofOutbox" | "ofInbox" | "holder"> | undefined;
  };

/** @param routing for the search of rows that have no label yet */
export function messageStore<S>(
  runner: StatementRunner<S>,
  sql: MessageStatements<S>,
  routing?: TopicRouting,
): MessageStore {
  /** Roles that only deliver work without an inbox table: then nothing was received. */
  const ofInbox = async (statement: S, values: Values): Promise<readonly Row[]> => {
    try {
      return await runner.run(statement, values);
    } catch (error) {
      if (error instanceof StoreError && error.code === "schema") return [];
      throw error;
    }
  };
  return {
    async get(id, withPayload) {
      const values = { id, withPayload };
      const [[inbox], [outbox]] = await Promise.all([ofInbox(sql.inboxRow, values), runner.run(sql.outboxRow, values)]);
      const message = outbox && outboxMessage(outbox);
      const ids = message?.expandedTo?.map((destination) => deliveryId(message.id, destination)) ?? [];
      const found = ids.length === 0 ? [] : (await runner.run(sql.deliveries, { ids })).map(storedDelivery);
      const byId = new Map(found.map((each) => [each.id, each]));
      return {
        now: dateOf(outbox?.now) ?? dateOf(inbox?.now) ?? new Date(),
        inbox: inbox && inboxMessage(inbox),
        outbox: message,
        deliveries: ids.flatMap((each) => byId.get(each) ?? []),
      };
    },

    async byIdempotencyKey(sources, key) {
      return idsOf(await ofInbox(sql.byIdempotencyKey, { sources, key }));
    },

    async rowBefore(id, destination) {
      const [row] = await runner.run(sql.rowBefore, { id, destination });
      if (row === undefined) return undefined;
      const { state, isParked, attempt, scheduledAt } = outboxMessage(row);
      return { id: row.id as MessageId, state, isParked, attempt, scheduledAt };
    },

    async lockHolder(id) {
      if (sql.locks === undefined) return undefined;
      const locks = [...(await runner.run(sql.locks.ofOutbox, { id })), ...(await ofInbox(sql.locks.ofInbox, { id }))];
      const transactions = locks.map(({ transaction }) => String(transaction));
      const [row] = await runner.run(sql.locks.holder, { transactions });
      return (
        row && {
          pid: row.pid === null ? null : Number(row.pid),
          user: textOf(row.user_name),
          application: textOf(row.application_name) || null,
          state: textOf(row.state),
          stateMs: row.state_ms === null ? null : Number(row.state_ms),
          seenBy: String(row.seen_by),
        }
      );
    },

    async outboxPage(search, before, limit) {
      const { correlationId, destination } = search;
      const rowsFound = await runner.run(sql.outboxPage, { ...searchValues(search), before, limit });
      // The statement searches the text of all headers, and knows no routes.
      const goesTo = (row: Row) =>
        textOf(row.destination) ?? (row.expanded_to ? null : routing?.destinationOf(textOf(row.topic) ?? ""));
      const found = rowsFound.map<Row>((row) => ({ ...row, destination: goesTo(row) }));
      const isMeant = (row: Row) =>
        (correlationId === undefined || correlationOf(row) === correlationId) &&
        (destination === undefined || row.destination === destination);
      const { rows, next } = pageOf(found, limit, "outbox");
      const meant = new Set(found.filter(isMeant).map(({ id }) => id));
      return { rows: rows.filter(({ id }) => meant.has(id)), next };
    },

    async inboxPage(search, before, limit) {
      const { source = null, aggregateId = null, isUnrelayed = false, pullSources } = search;
      // A time before the year 1 ends with " BC".
      const [, beforeTime = null, beforeId = null] = /^(.*) (\S+)$/.exec(before ?? "") ?? [];
      const own = { source, aggregateId, isUnrelayed, pullSources, beforeTime, beforeId, limit };
      return pageOf(await ofInbox(sql.inboxPage, { ...searchValues(search), ...own }), limit, "inbox");
    },
  };
}

function searchValues(search: Omit<MessageSearch, "state"> & { readonly state?: string | undefined }): Values {
  const { key, topic, destination, correlationId, state, createdAfter, createdBefore } = search;
  return {
    key: key ?? null,
    topic: topic ?? null,
    destination: destination ?? null,
    correlationId: correlationId ?? null,
    // Headers are searched as text before they are read.
    quotedCorrelationId: correlationId === undefined ? null : JSON.stringify(correlationId),
    state: state ?? null,
    createdAfter: createdAfter ?? null,
    createdBefore: createdBefore ?? null,
  };
}

function correlationOf(row: Row): string | undefined {
  const entries = Object.entries(headersOf(row.headers));
  return entries.find(([name]) => name.toLowerCase() === CORRELATION_HEADER)?.[1];
}

const CORRELATION_HEADER = "x-correlation-id";

function pageOf(rows: readonly Row[], limit: number, table: FoundMessage["table"]): MessagePage {
  const [first] = rows;
  return {
    rows: rows.filter(({ id }) => id !== null && id !== undefined).map((row) => foundMessage(row, table)),
    next: Number(first?.looked_at ?? 0) < limit ? null : String(first?.last),
  };
}

function foundMessage(row: Row, table: FoundMessage["table"]): FoundMessage {
  return {
    id: row.id as MessageId,
    table,
    position: String(table === "outbox" ? row.sequence : row.position),
    createdAt: dateOf(row.created_at),
    source: textOf(row.source),
    topic: textOf(row.topic),
    key: textOf(row.key),
    state: row.state as FoundMessage["state"],
    destination: textOf(row.destination),
    expandedTo: destinationsIn(row.expanded_to)?.length ?? null,
    messageId: textOf(row.message_id) as MessageId | null,
    attempt: numberOf(row.attempt, 0),
    lastError: textOf(row.last_error),
  };
}

const PARKED_MS = Date.parse(PARKED_UNTIL);

function partsOf(row: Row) {
  return {
    id: row.id as MessageId,
    attempt: numberOf(row.attempt, 0),
    createdAt: dateOf(row.created_at),
    scheduledAt: dateOf(row.scheduled_at),
    claimedAt: dateOf(row.claimed_at),
    leaseUntil: dateOf(row.lease_expires_at),
    isClaimed: row.claim_token !== null && row.claim_token !== undefined,
    lastError: textOf(row.last_error),
    headers: headersOf(row.headers),
    payload: textOf(row.payload),
  };
}

function inboxMessage(row: Row): InboxMessage {
  return {
    ...partsOf(row),
    source: String(row.source),
    idempotencyKey: String(row.idempotency_key),
    aggregateId: textOf(row.aggregate_id),
    eventType: textOf(row.event_type),
    state: row.state as InboxMessage["state"],
    consumption: row.consumption as InboxMessage["consumption"],
    correlationId: textOf(row.correlation_id),
    processedAt: dateOf(row.processed_at),
  };
}

function outboxMessage(row: Row): OutboxMessage {
  const parts = partsOf(row);
  const state = row.state as OutboxMessage["state"];
  return {
    ...parts,
    sequence: String(row.sequence),
    ...routedRow(row),
    key: textOf(row.key),
    state,
    isParked: state === "pending" && parts.attempt > 0 && parts.scheduledAt?.getTime() === PARKED_MS,
    isAhead: state === "pending" && Number(row.is_ahead) === 1,
    maxAttempts: numberOf(row.max_attempts, 0),
    updatedAt: dateOf(row.updated_at),
    expandedTo: destinationsIn(row.expanded_to) ?? null,
    messageId: textOf(row.message_id) as MessageId | null,
  };
}

function storedDelivery(row: Row): StoredDelivery {
  const { id, destination, state, isParked, attempt, lastError, updatedAt } = outboxMessage(row);
  return { id, destination, state: isParked ? "parked" : state, attempt, lastError, updatedAt };
}

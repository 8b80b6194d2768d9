import { setImmediate } from "node:timers/promises";
import { v7 as uuidv7 } from "uuid";
import { errorText, StoreError } from "../../model/errors.ts";
import type { Consumption, Headers, InsertResult, MessageId, NewInboxRow, Receipt } from "../../model/rows.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { type AttributePlan, droppedKey } from "./attributes.ts";
import type { ExpirySettings } from "./expiry.ts";
import type { AttributeExpressions } from "./expressions.ts";
import { compileHeaderFilter, type HeaderFilterSettings } from "./headers.ts";
import type { Journal } from "./journal.ts";
import {
  createPreparation,
  type Prepared,
  REJECTION_METRICS,
  type ReceivedMessage,
  type SourceStage,
} from "./preparation.ts";
import type { ScheduleSettings } from "./schedule.ts";

export interface ReceiverOptions {
  readonly source: string;
  readonly settings: {
    readonly consumption: Consumption;
    readonly filter?: HeaderFilterSettings | undefined;
    readonly cloudEvents?: boolean | undefined;
  } & ExpirySettings &
    ScheduleSettings;
  readonly attributes: AttributePlan;
  /** Compute attributes; none by default. */
  readonly expressions?: AttributeExpressions | undefined;
  readonly stage?: SourceStage | undefined;
  /** Stores a row; resolves after the commit. */
  readonly insert: (row: NewInboxRow) => Promise<InsertResult>;
  /** Stores the rows of one request in one commit: each that the database takes, or with `isAtomic` all or none. */
  readonly insertRequest: (rows: readonly NewInboxRow[], isAtomic: boolean) => Promise<readonly InsertResult[]>;
  /** Longest time in ms for the transforms of one request of several messages. Default 60,000. */
  readonly requestTimeoutMs?: number | undefined;
  /** None by default. */
  readonly journal?: Journal | undefined;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Log;
}

/** What is known of a message before it is read. */
interface UnreadMessage {
  readonly body: Buffer;
  /** As the sender gave it. */
  readonly correlationId: string | undefined;
}

/** Receives the messages of one source, in two steps because an HTTP source answers a header in between. */
export interface Receiver {
  readonly source: string;
  /**
   * The header filter. A message that does not pass is counted and leaves no row.
   *
   * @param headers returns all received headers; called only when there is a rule to test
   * @param message for the journal
   */
  passes(headers: () => Headers, message: UnreadMessage): boolean;
  /** Everything after the filter: JSON, attributes, transform, insert. Counts the outcome. Never rejects. */
  accept(message: ReceivedMessage): Promise<Receipt>;
  /**
   * The same for the messages of one request, in one commit. While the transform of one of them cannot run, none is
   * stored.
   *
   * @param isAtomic stores all of them or none; duplicates count as stored
   * @returns a receipt for each, in order
   */
  acceptRequest(messages: readonly ReceivedMessage[], isAtomic: boolean): Promise<readonly Receipt[]>;
}

/** @throws Error when the source's filter is invalid */
export function createReceiver(options: ReceiverOptions): Receiver {
  const { source, settings, attributes, expressions, stage, insert, insertRequest, journal, clock, metrics, log } =
    options;
  const { requestTimeoutMs = REQUEST_TIMEOUT_MS } = options;
  const prepare = createPreparation({ source, settings, attributes, expressions, stage, clock, log });
  const filter = settings.filter === undefined ? null : compileHeaderFilter(settings.filter);

  function passes(headers: () => Headers, { body, correlationId }: UnreadMessage): boolean {
    if (filter === null) return true;
    const received = headers();
    if (filter(received)) return true;
    journal?.filtered(source, () => ({
      idempotencyKey: droppedKey(attributes, { body, headers: received }),
      correlationId,
    }));
    count({ kind: "filtered" }, metrics);
    return false;
  }

  async function accept(message: ReceivedMessage): Promise<Receipt> {
    const outcome = await process(message);
    count(outcome, metrics);
    return outcome;
  }

  async function process(message: ReceivedMessage): Promise<Receipt> {
    const prepared = await prepare(message, uuidv7() as MessageId, true);
    if (prepared.kind === "row") return store(prepared.row);
    return refusalOf(prepared);
  }

  async function store(row: NewInboxRow): Promise<Receipt> {
    try {
      return receiptOf(row, await insert(row));
    } catch (error) {
      return unavailable(error);
    }
  }

  function receiptOf(row: NewInboxRow, outcome: InsertResult): Receipt {
    switch (outcome.kind) {
      case "stored":
        return { kind: "stored", id: row.id };
      case "duplicate":
        journal?.duplicate(row);
        return outcome;
      case "refused":
        if (outcome.mayPassLater === true) return { kind: "unavailable", reason: outcome.reason };
        return {
          kind: "rejected",
          rejection: "unstorable",
          reason: `the database cannot hold this message: ${outcome.reason}`,
        };
    }
  }

  async function acceptRequest(messages: readonly ReceivedMessage[], isAtomic: boolean): Promise<readonly Receipt[]> {
    const receipts = await processRequest(messages, isAtomic);
    for (const receipt of receipts) count(receipt, metrics);
    return receipts;
  }

  async function processRequest(messages: readonly ReceivedMessage[], isAtomic: boolean): Promise<readonly Receipt[]> {
    const all = await prepareAll(messages);
    const busy = all.find((prepared) => prepared.kind === "unavailable");
    if (busy !== undefined) return messages.map(() => ({ kind: "busy", reason: busy.reason }));
    const rows = all.flatMap((prepared) => (prepared.kind === "row" ? [prepared.row] : []));
    const isStored = rows.length > 0 && !(isAtomic && rows.length < all.length);
    const stored = isStored ? await storeRequest(rows, isAtomic) : rows.map(() => WITHHELD);
    const ofRows = new Map(rows.map((row, n) => [row, stored[n] ?? WITHHELD]));
    return all.map((prepared) => {
      return prepared.kind === "row" ? (ofRows.get(prepared.row) ?? WITHHELD) : refusalOf(prepared);
    });
  }

  /**
   * In slices, so that other requests have their turn, and a place among those who wait for a transform. A request is
   * refused as busy with its first slice or not at all: after it, its messages wait for their turn.
   */
  async function prepareAll(messages: readonly ReceivedMessage[]): Promise<readonly Prepared[]> {
    const all: Prepared[] = [];
    const endsAt = clock.monotonic() + requestTimeoutMs;
    for (let start = 0; start < messages.length; start += SLICE) {
      if (start > 0) await setImmediate();
      if (clock.monotonic() > endsAt) {
        const reason = `its messages waited longer than ${requestTimeoutMs} ms for their transforms`;
        return [...all, { kind: "unavailable", reason }];
      }
      const slice = messages.slice(start, start + SLICE);
      const refusable = start === 0;
      all.push(...(await Promise.all(slice.map((message) => prepare(message, uuidv7() as MessageId, refusable)))));
      if (all.slice(start).some(({ kind }) => kind === "unavailable")) break;
    }
    return all;
  }

  async function storeRequest(rows: readonly NewInboxRow[], isAtomic: boolean): Promise<readonly Receipt[]> {
    try {
      const outcomes = await insertRequest(rows, isAtomic);
      const isNone = isAtomic && outcomes.some(({ kind }) => kind === "refused");
      return rows.map((row, n) => {
        const outcome = outcomes[n];
        return outcome === undefined || (isNone && outcome.kind !== "refused") ? WITHHELD : receiptOf(row, outcome);
      });
    } catch (error) {
      return rows.map(() => unavailable(error));
    }
  }

  return { source, passes, accept, acceptRequest };
}

/** Without what only a row kept as evidence needs. */
function refusalOf(prepared: Exclude<Prepared, { readonly kind: "row" }>): Receipt {
  const { kind, reason } = prepared;
  if (kind === "unavailable" || prepared.mayPassLater === true) return { kind: "busy", reason };
  return { kind, rejection: prepared.rejection, reason };
}

const unavailable = (error: unknown): Receipt => ({
  kind: "unavailable",
  reason: error instanceof StoreError ? error.message : errorText(error),
});

const WITHHELD: Receipt = { kind: "withheld" };
const REQUEST_TIMEOUT_MS = 60_000;
/** Messages of a request that are prepared at a time. */
const SLICE = 64;

function count(outcome: Receipt, metrics: Metrics): void {
  switch (outcome.kind) {
    case "stored":
      metrics.inboxMessages("new", 1);
      break;
    case "duplicate":
      metrics.inboxMessages("duplicate", 1);
      break;
    case "filtered":
      metrics.inboxFiltered();
      break;
    case "unavailable":
      metrics.inboxRejection("storage_failed");
      break;
    case "busy":
      metrics.inboxRejection("transform_unavailable");
      break;
    case "withheld":
      break;
    case "rejected":
      metrics.inboxRejection(REJECTION_METRICS[outcome.rejection]);
      break;
  }
}

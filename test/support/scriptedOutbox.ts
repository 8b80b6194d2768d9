import { randomUUID } from "node:crypto";
import type { ClaimedRow, MessageId, Outcome } from "../../src/model/rows.ts";
import type {
  ClaimRequest,
  ClaimResult,
  OutboxBacklog,
  OutboxGlance,
  OutboxStore,
  RelabelResult,
  SettledRows,
} from "../../src/ports/store.ts";

/** A row of the scripted outbox. */
export function outboxRow(overrides: Partial<Omit<ClaimedRow, "claimToken">> = {}): Omit<ClaimedRow, "claimToken"> {
  return {
    id: randomUUID() as MessageId,
    sequence: "1",
    topic: "orders",
    destination: null,
    isPinned: false,
    key: null,
    aggregateType: null,
    payload: "{}",
    headers: {},
    attempt: 0,
    maxAttempts: 5,
    createdAt: new Date(0),
    expiresInMs: null,
    ...overrides,
  };
}

/**
 * An outbox for faults and moments that a database cannot be made to show: each claim returns the next scripted batch, and a test may make any method hang or
 * fail.
 */
export class ScriptedOutbox implements OutboxStore {
  readonly settled: Outcome[] = [];
  readonly claims: ClaimRequest[] = [];
  readonly batches: Omit<ClaimedRow, "claimToken">[][] = [];
  /** Ids that a renewal no longer finds, and that the fence refuses. */
  readonly takenOver = new Set<MessageId>();
  /** Ids for which the database takes no outcome. */
  readonly refusing = new Set<MessageId>();
  /** Ids that another transaction holds. */
  renewals = 0;
  hasQueues = true;
  readonly #held = new Set<MessageId>();

  async claim(request: ClaimRequest): Promise<ClaimResult> {
    this.claims.push(request);
    const rows = (this.batches.shift() ?? []).map((row): ClaimedRow => ({ ...row, claimToken: request.token }));
    for (const row of rows) this.#held.add(row.id);
    const more = this.batches.length > 0;
    return { rows, more, heldBack: 0, unread: new Set(more ? request.queues?.room.keys() : []) };
  }

  async glance(): Promise<OutboxGlance> {
    return { isOverdue: this.batches.length > 0, isWatched: false };
  }

  async check(): Promise<void> {}

  async renew(): Promise<ReadonlySet<MessageId>> {
    this.renewals += 1;
    return new Set([...this.#held].filter((id) => !this.takenOver.has(id)));
  }

  async settle(outcomes: readonly Outcome[]): Promise<SettledRows> {
    const refused = outcomes.filter(({ id }) => this.refusing.has(id));
    const taken = outcomes.filter(({ id }) => !this.refusing.has(id));
    this.settled.push(...taken);
    for (const { id } of taken) this.#held.delete(id);
    return {
      closed: new Set(taken.map(({ id }) => id).filter((id) => !this.takenOver.has(id))),
      refused: new Map(refused.map(({ id }) => [id, "the row is refused"])),
    };
  }

  async reclaim(): Promise<number> {
    return 0;
  }

  async clock(): Promise<number> {
    return 0;
  }

  async relabel(): Promise<RelabelResult> {
    return { next: null, found: 0 };
  }

  async destinationsWaiting(): Promise<readonly string[]> {
    return [];
  }

  async backlog(): Promise<OutboxBacklog> {
    return { pending: 0, oldestPendingAgeMs: null, blockedKeys: 0, parked: 0, byDestination: new Map() };
  }

  /** `[id, kind]` of everything settled so far, in order. */
  outcomes(): readonly (readonly [MessageId, Outcome["kind"]])[] {
    return this.settled.map((outcome) => [outcome.id, outcome.kind]);
  }
}

/** The expansion of a poller without messages for several destinations. */
export const NO_LISTS = { running: [], stateOf: () => "open" as const, begin: () => {}, ended: async () => {} };

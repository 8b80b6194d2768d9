import type { ClaimToken, MessageId, OutboxState, Outcome } from "../../../src/model/rows.ts";
import type { ReplayScope } from "../../../src/ports/finishedRows.ts";
import type { ClaimQueues, ClaimRequest, Lease } from "../../../src/ports/store.ts";

/** Every payload that is not NULL. */
export const PAYLOAD = "{}";

/** What an owner's table or trigger may do to one row. */
export const ODDITIES = [
  "payload NULL",
  "topic NULL",
  "headers NULL",
  "created_at NULL",
  "created_at infinity",
  "updated_at NULL",
  "scheduled_at NULL",
  "attempt NULL",
  "max_attempts NULL",
  "sent refused",
] as const;
export type Oddity = (typeof ODDITIES)[number];
/** What a row's `last_error` says whose trigger refuses that it is `sent`. */
export const SENT_REFUSED =
  "delivered, but the database refuses to store that: outbox.settle: not this one (SQLSTATE P0001)";
/** A claim's lease, and the longest time it can be extended to: between two of the moments at which the model looks. */
export const LEASE = { leaseMs: 150_000, claimTimeoutMs: 350_000 } as const;

export interface ModelRow {
  readonly id: MessageId;
  /** Its place in the order of `sequence`. */
  readonly position: number;
  readonly key: string | null;
  readonly topic: string | null;
  readonly oddity: Oddity | null;
  state: OutboxState;
  attempt: number;
  dueAt: number;
  /** It was due when it was inserted, and has been neither tried nor replayed since. */
  wasDueAtInsert: boolean;
  /** It was due once: from then on later rows of its key wait for it, whatever the clock says. */
  wasClaimed: boolean;
  /** What its columns `created_at` and `updated_at` say, by a clock that may be set back. */
  readonly createdAt: number;
  updatedAt: number;
  /** Where a claim by destination has sent it; null after a claim of all rows as one queue. */
  label: string | null;
  token: ClaimToken | null;
  claimedAt: number;
  leaseEndsAt: number | null;
  lastError: string | null;
  /** When it was sent or died, in steps of the model. */
  finishedAtStep: number;
}

/** What one replica knows. */
export interface ModelReplica {
  /** Every claim it was ever given, also those that it has lost since. */
  readonly given: { readonly id: MessageId; readonly claimToken: ClaimToken }[];
  /** It may have seen a blocked front, and then begins its claims behind it until time passes. */
  mayLookPastFront: boolean;
}

export interface ModelScope {
  readonly scope: ReplayScope;
  readonly step: number;
  readonly now: number;
}

/** The outbox as plain data: what a claim, a renewal, an outcome, a reclaim and a replay are to make of it. */
export class OutboxModel {
  /** ms since the run began. Real time passes too, but never as much as the differences between the times in the model. */
  now = 0;
  /** Counts what happens, for the order of a replay's beginning and the rows that finish. */
  step = 0;
  /** In the order of `sequence`. */
  readonly rows: ModelRow[] = [];
  readonly replicas: readonly ModelReplica[];
  scope: ModelScope | undefined;
  readonly #byId = new Map<MessageId, ModelRow>();
  /** In the order of `sequence` too: most questions are about the rows of one key. */
  readonly #ofKey = new Map<string, ModelRow[]>();
  #nextPosition = 0;

  constructor(replicas: number) {
    this.replicas = Array.from({ length: replicas }, () => ({
      given: [],
      mayLookPastFront: false,
    }));
  }

  replica(index: number): ModelReplica {
    const replica = this.replicas[index];
    if (replica === undefined) throw new Error(`there is no replica ${index}`);
    return replica;
  }

  /** The rows as they are now, for a look back. */
  snapshot(): OutboxModel {
    const copy = new OutboxModel(0);
    copy.now = this.now;
    for (const row of this.rows) copy.#add({ ...row });
    return copy;
  }

  /** @param snapshot of the same rows */
  goBack(snapshot: OutboxModel): void {
    for (const row of this.rows) Object.assign(row, snapshot.row(row.id));
  }

  row(id: MessageId): ModelRow {
    const row = this.#byId.get(id);
    if (row === undefined) throw new Error(`a row that nobody inserted: ${id}`);
    return row;
  }

  /** @returns the place in the order of `sequence` of a row that will be inserted by it */
  reserve(): number {
    this.#nextPosition += 1;
    return this.#nextPosition;
  }

  insert(
    id: MessageId,
    key: string | null,
    dueInMs: number,
    {
      oddity = null,
      topic = "orders",
      position = this.reserve(),
    }: { readonly oddity?: Oddity | null; readonly topic?: string | null; readonly position?: number } = {},
  ): void {
    this.#add({
      id,
      position,
      key,
      topic: oddity === "topic NULL" ? null : topic,
      oddity,
      state: "pending",
      attempt: 0,
      dueAt: oddity === "scheduled_at NULL" ? Number.NEGATIVE_INFINITY : this.now + dueInMs,
      wasDueAtInsert: dueInMs <= 0 && oddity !== "created_at NULL",
      wasClaimed: false,
      createdAt: CREATED_AT[oddity ?? ""] ?? this.now,
      updatedAt: oddity === "updated_at NULL" ? Number.NEGATIVE_INFINITY : this.now,
      label: null,
      token: null,
      claimedAt: 0,
      leaseEndsAt: null,
      lastError: null,
      finishedAtStep: 0,
    });
  }

  isDue(row: ModelRow): boolean {
    return row.state === "pending" && (row.dueAt <= this.now || this.#isFresh(row));
  }

  isParkedOrBehind(row: ModelRow): boolean {
    return isParked(row) || this.#earlierOfKey(row, isParked) !== undefined;
  }

  /**
   * Whether later rows of its key have to wait for it, if the claimant holds these tokens.
   *
   * @param destination of the later rows; undefined if it does not count
   */
  holdsBack(row: ModelRow, heldTokens: readonly ClaimToken[], destination?: string | null): boolean {
    if (row.state === "processing") {
      const isOwn = row.token !== null && heldTokens.includes(row.token);
      return !isOwn || (destination !== undefined && row.label !== null && row.label !== destination);
    }
    const latest = Math.max(this.now, row.createdAt, row.updatedAt);
    return row.state === "pending" && (row.attempt > 0 || row.wasClaimed || row.dueAt <= latest);
  }

  /** What a claim finds that looks at every row. */
  claimable({ limit, maxBytes, heldTokens, queues }: ClaimRequest) {
    const left = new Map(queues?.room);
    const isCandidate = (row: ModelRow) => {
      if (!this.isDue(row)) return false;
      if (queues === undefined) return true;
      if (!isAsked(queues, row) || this.#isPassed(row, queues, heldTokens)) return false;
      if (row.topic === null) return true;
      const room = left.get(row.topic) ?? 0;
      left.set(row.topic, room - 1);
      return room > 0;
    };
    const candidates = this.rows.filter(isCandidate).slice(0, limit);
    const taken = new Set(candidates);
    const free = candidates.filter((row) => {
      const destination = queues === undefined ? undefined : row.topic;
      const isInTheWay = (one: ModelRow) => !taken.has(one) && this.holdsBack(one, heldTokens, destination);
      return this.#earlierOfKey(row, isInTheWay) === undefined;
    });
    // A row of one destination that waits holds back those of others.
    const isFree = (row: ModelRow) =>
      this.#earlierOfKey(row, (one) => taken.has(one) && !free.includes(one)) === undefined;
    const claimed = free.filter(isFree);
    const bytesBefore = (n: number) => PAYLOAD.length * claimed.slice(0, n).filter(hasPayload).length;
    const isFull = candidates.length >= limit;
    const isUnread = ([, room]: readonly [string, number]) => claimed.length > 0 && (isFull || room <= 0);
    const unread = new Set([...left].filter(isUnread).map(([destination]) => destination));
    return {
      rows: claimed.filter((_, n) => bytesBefore(n) < maxBytes).map((row) => row.id),
      more: queues === undefined ? isFull : unread.size > 0,
      heldBack: candidates.length - claimed.length,
      unread,
    };
  }

  /** A claim by destination passes keys whose first row goes elsewhere, is in other hands or waits for its retry. */
  #isPassed(row: ModelRow, queues: ClaimQueues, heldTokens: readonly ClaimToken[]): boolean {
    const first = this.#earlierOfKey(row, (one) => this.holdsBack(one, heldTokens, row.topic)) ?? row;
    return first.state === "processing" || !isAsked(queues, first) || (first.attempt > 0 && !this.isDue(first));
  }

  /**
   * Says what is wrong with a claim, whatever it overlooked: each row was due and asked for, and is not ahead of an unfinished one of its key.
   *
   * @param ids the claimed rows in the order given
   * @returns the first fault of each row that has one
   */
  faultsOf(
    ids: readonly MessageId[],
    { heldTokens, queues }: Pick<ClaimRequest, "heldTokens" | "queues">,
  ): ReadonlyMap<MessageId, string> {
    const claimed = ids.map((id) => this.row(id));
    const faults = new Map<MessageId, string>();
    for (const row of claimed) {
      const overtaken = this.#earlierOfKey(
        row,
        (one) =>
          this.holdsBack(one, heldTokens, queues && row.topic) && !claimed.slice(0, claimed.indexOf(row)).includes(one),
      );
      if (!this.isDue(row)) faults.set(row.id, `row ${row.position} is ${row.state}, due at ${row.dueAt}`);
      else if (queues && !isAsked(queues, row)) faults.set(row.id, `row ${row.position} goes elsewhere`);
      else if (overtaken !== undefined) faults.set(row.id, `row ${row.position} overtakes row ${overtaken.position}`);
    }
    return faults;
  }

  claim(
    replica: number,
    ids: readonly MessageId[],
    token: ClaimToken,
    { leaseMs }: Lease = LEASE,
    isByDestination = true,
  ): void {
    for (const id of ids) {
      const row = this.row(id);
      if (isByDestination) row.label = row.topic;
      row.state = "processing";
      row.wasClaimed = true;
      row.token = token;
      row.claimedAt = this.now;
      row.updatedAt = this.now;
      row.leaseEndsAt = this.now + leaseMs;
      this.replica(replica).given.push({ id, claimToken: token });
    }
  }

  /** The tokens under which a replica still has rows. */
  heldTokens(replica: number): readonly ClaimToken[] {
    return [...new Set(this.liveClaims(replica).map(({ claimToken }) => claimToken))];
  }

  liveClaims(replica: number) {
    return this.replica(replica).given.filter((claim) => this.row(claim.id).token === claim.claimToken);
  }

  lostClaims(replica: number) {
    return this.replica(replica).given.filter((claim) => this.row(claim.id).token !== claim.claimToken);
  }

  renew(tokens: readonly ClaimToken[], { leaseMs, claimTimeoutMs }: Lease = LEASE): ReadonlySet<MessageId> {
    const held = this.rows.filter((row) => row.token !== null && tokens.includes(row.token));
    for (const row of held) {
      row.leaseEndsAt = Math.min(this.now + leaseMs, row.claimedAt + claimTimeoutMs);
    }
    return new Set(held.map((row) => row.id));
  }

  settle(settlements: readonly Outcome[]) {
    const closed = settlements.filter(({ id, claimToken }) => this.row(id).token === claimToken);
    for (const settlement of closed) this.#close(settlement);
    return { closed: new Set(closed.map(({ id }) => id)) };
  }

  expired(): readonly ModelRow[] {
    return this.rows.filter(({ leaseEndsAt }) => leaseEndsAt !== null && leaseEndsAt < this.now);
  }

  reclaim(row: ModelRow): void {
    row.state = "pending";
    row.updatedAt = this.now;
    this.#giveBack(row);
    this.#unclaim(row);
  }

  /** Behind a clock that was set back, what had finished before is not in the scope of a replay. */
  finished({ step, now }: ModelScope): readonly ModelRow[] {
    return this.rows.filter(
      (row) => (row.state === "sent" || row.state === "dead") && row.finishedAtStep <= step && row.updatedAt <= now,
    );
  }

  replay(row: ModelRow): void {
    Object.assign(row, { state: "pending", attempt: 0, dueAt: this.now, updatedAt: this.now, lastError: null });
    row.wasDueAtInsert = false;
  }

  /** In the order of `sequence`. */
  parked(): readonly ModelRow[] {
    return this.rows.filter(isParked);
  }

  retryParked(row: ModelRow): void {
    Object.assign(row, { attempt: 0, dueAt: this.now, updatedAt: this.now, wasDueAtInsert: false });
  }

  discardParked(row: ModelRow, note: string): void {
    const lastError = `${note}: ${row.lastError}`;
    Object.assign(row, { state: "dead", updatedAt: this.now, finishedAtStep: this.step, lastError });
  }

  /** Not scheduled ahead, tried or replayed: due whatever the clock says now. */
  #isFresh(row: ModelRow): boolean {
    return row.attempt === 0 && (row.wasDueAtInsert || row.dueAt < row.createdAt);
  }

  #add(row: ModelRow): void {
    this.#byId.set(row.id, row);
    insertInOrder(this.rows, row);
    if (row.key === null) return;
    const ofKey = this.#ofKey.get(row.key);
    if (ofKey === undefined) this.#ofKey.set(row.key, [row]);
    else insertInOrder(ofKey, row);
  }

  /** The first row of its key that is earlier and answers to a description. */
  #earlierOfKey({ key, position }: ModelRow, isMeant: (row: ModelRow) => boolean): ModelRow | undefined {
    const ofKey = key === null ? [] : (this.#ofKey.get(key) ?? []);
    const found = ofKey.find((one) => one.position >= position || isMeant(one));
    return found === undefined || found.position >= position ? undefined : found;
  }

  #close(settlement: Outcome): void {
    const row = this.row(settlement.id);
    this.#unclaim(row);
    row.updatedAt = this.now;
    row.state = settlement.kind === "sent" || settlement.kind === "dead" ? settlement.kind : "pending";
    if (row.state !== "pending") row.finishedAtStep = this.step;
    if (settlement.kind === "retry") row.dueAt = this.now + settlement.delayMs;
    if (settlement.kind === "park") row.dueAt = PARKED;
    if (settlement.kind === "release") this.#giveBack(row);
    const isCounted =
      settlement.kind === "retry" || settlement.kind === "park" || (settlement.kind === "dead" && settlement.attempted);
    if (isCounted) row.attempt += 1;
    if ("reason" in settlement) row.lastError = settlement.reason;
    if (settlement.kind === "sent" && row.oddity === "sent refused") {
      row.state = "dead";
      row.lastError = SENT_REFUSED;
    }
  }

  /** Its time had come when it was claimed: a clock that has been set back since does not put it ahead again. */
  #giveBack(row: ModelRow): void {
    row.dueAt = Math.min(row.dueAt, this.now);
  }

  #unclaim(row: ModelRow): void {
    row.token = null;
    row.leaseEndsAt = null;
  }
}

const PARKED = Number.POSITIVE_INFINITY;

/** The times of creation that are none: NULL is earlier than all others. */
const CREATED_AT: Readonly<Record<string, number>> = {
  "created_at NULL": Number.NEGATIVE_INFINITY,
  "created_at infinity": Number.POSITIVE_INFINITY,
};

const isParked = ({ state, dueAt }: ModelRow): boolean => state === "pending" && dueAt === PARKED;

const hasPayload = ({ oddity }: ModelRow): boolean => oddity !== "payload NULL";

function insertInOrder(rows: ModelRow[], row: ModelRow): void {
  const behind = rows.findLastIndex(({ position }) => position < row.position) + 1;
  rows.splice(behind, 0, row);
}

/** Topics are called as the destinations to which they go; a row without one is always claimed. */
function isAsked({ room, exceptIds = [] }: ClaimQueues, { id, topic }: ModelRow): boolean {
  return !exceptIds.includes(id) && (topic === null || room.has(topic));
}

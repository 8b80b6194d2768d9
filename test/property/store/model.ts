import type { ClaimToken, MessageId, OutboxState, Outcome } from "../../../src/model/rows.ts";
import type { ReplayScope } from "../../../src/ports/finishedRows.ts";
import type { ClaimQueues, ClaimRequest, Lease } from "../../../src/ports/store.ts";

/** Its messages go to several destinations; any other topic is called as its destination. */
export const LIST_TOPIC = "both";
export const LIST = ["orders", "bills"] as const;

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
  /** Its place in the order of its key: a delivery has that of its message. */
  readonly place: number;
  readonly key: string | null;
  readonly topic: string | null;
  /** Its destination; null without a topic, and for a message of a list. */
  readonly destination: string | null;
  /** Of a delivery. */
  readonly messageId: MessageId | null;
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
  /** The label that a claim by destination gave it; null before. */
  label: string | null;
  /** Of a message that has been expanded. */
  isExpanded: boolean;
  token: ClaimToken | null;
  claimedAt: number;
  leaseEndsAt: number | null;
  lastError: string | null;
  /** When it was sent or died, in steps of the model. */
  finishedAtStep: number;
}

/** The deliveries of a message. */
export interface ModelDelivery {
  readonly id: MessageId;
  readonly destination: string;
  readonly isDead: boolean;
  readonly reason: string | null;
}

/** What one replica knows. */
export interface ModelReplica {
  /** Every claim that it ever got, including lost ones. */
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
  /** In the order of their places: most questions are about the rows of one key. */
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

  /** A copy of the rows, for a look back. */
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

  has(id: MessageId): boolean {
    return this.#byId.has(id);
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
    const itsTopic = oddity === "topic NULL" ? null : topic;
    this.#add({
      id,
      position,
      place: position,
      key,
      topic: itsTopic,
      destination: itsTopic === LIST_TOPIC ? null : itsTopic,
      messageId: null,
      oddity,
      state: "pending",
      attempt: 0,
      dueAt: oddity === "scheduled_at NULL" ? Number.NEGATIVE_INFINITY : this.now + dueInMs,
      wasDueAtInsert: dueInMs <= 0 && oddity !== "created_at NULL",
      wasClaimed: false,
      createdAt: CREATED_AT[oddity ?? ""] ?? this.now,
      updatedAt: oddity === "updated_at NULL" ? Number.NEGATIVE_INFINITY : this.now,
      label: null,
      isExpanded: false,
      token: null,
      claimedAt: 0,
      leaseEndsAt: null,
      lastError: null,
      finishedAtStep: 0,
    });
  }

  /** Messages that wait to be expanded. */
  unexpanded(): readonly ModelRow[] {
    return this.rows.filter((row) => row.topic === LIST_TOPIC && row.messageId === null && row.state === "pending");
  }

  expand(message: ModelRow): void {
    Object.assign(message, { state: "sent", isExpanded: true, updatedAt: this.now, finishedAtStep: this.step });
  }

  /** Every pending row but a message of a list has a label, as if each claim had looked at all. */
  labelAll(): void {
    for (const row of this.rows) if (row.state === "pending") row.label = row.destination;
  }

  /** A delivery of a message. After a failure as a row of another route it is tried at once. */
  deliver(message: ModelRow, { id, destination, isDead, reason }: ModelDelivery): void {
    const { place, key, topic, createdAt, attempt, dueAt, wasDueAtInsert } = message;
    const hasFailed = attempt > 0;
    this.#add({
      ...{ id, position: this.reserve(), place, key, topic, destination, messageId: message.id, oddity: null },
      ...{ state: isDead ? "dead" : "pending", attempt: 0, lastError: reason, createdAt, updatedAt: this.now },
      ...{ dueAt: hasFailed ? createdAt : dueAt, wasDueAtInsert: hasFailed || wasDueAtInsert, wasClaimed: false },
      ...{ label: destination, isExpanded: false, token: null, claimedAt: 0, leaseEndsAt: null },
      finishedAtStep: isDead ? this.step : 0,
    });
  }

  isDue(row: ModelRow): boolean {
    return row.state === "pending" && (row.dueAt <= this.now || this.#isFresh(row));
  }

  /** @param mayBe whether a parked row without a label is in front of deliveries to other destinations */
  isParkedOrBehind(row: ModelRow, mayBe = false): boolean {
    const mayStop = (one: ModelRow) => mayBe && isParked(one) && one.label === null && row.messageId !== null;
    const isBehind = (one: ModelRow) =>
      mayStop(one) || (one.state === "pending" && precedes(one, row) && this.isParkedOrBehind(one, mayBe));
    return isParked(row) || this.#earlierOfKey(row, isBehind) !== undefined;
  }

  /** Whether a row that a receipt stores with this key would be free. */
  isFree(key: string | null, destination: string, isDelivery: boolean, heldTokens: readonly ClaimToken[]): boolean {
    if (key === null) return true;
    const row = { key, destination, messageId: isDelivery ? ("new" as MessageId) : null };
    return !(this.#ofKey.get(key) ?? []).some((one) => this.#waits(row, one, heldTokens, false));
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

  /**
   * Whether a row waits for an earlier one of its key. Rows of another lane stop it under any claim, if they go to its
   * destination or nobody has said where.
   */
  #waits(
    row: Pick<ModelRow, "destination" | "messageId">,
    one: ModelRow,
    heldTokens: readonly ClaimToken[],
    isOneQueue: boolean,
  ): boolean {
    if (isSameLane(row, one)) return this.holdsBack(one, heldTokens, isOneQueue ? undefined : row.destination);
    if (row.messageId !== null && one.messageId !== null) return false;
    const isThere =
      row.messageId !== null
        ? one.label === null || one.label === row.destination
        : isOneQueue || one.destination === row.destination;
    return isThere && this.holdsBack(one, []);
  }

  /** What a claim finds that looks at every row. */
  claimable({ limit, maxBytes, heldTokens, queues }: ClaimRequest) {
    const left = new Map(queues?.room);
    const isCandidate = (row: ModelRow) => {
      if (!this.isDue(row)) return false;
      if (queues === undefined) return true;
      if (!isAsked(queues, row) || this.#isPassed(row, queues, heldTokens)) return false;
      if (row.destination === null) return true;
      const room = left.get(row.destination) ?? 0;
      left.set(row.destination, room - 1);
      return room > 0;
    };
    const candidates = this.rows.filter(isCandidate).slice(0, limit);
    const taken = new Set(candidates);
    const free = candidates.filter((row) => {
      const isLeft = (one: ModelRow) => !taken.has(one) || !isSameLane(row, one);
      const isInTheWay = (one: ModelRow) => isLeft(one) && this.#waits(row, one, heldTokens, queues === undefined);
      return this.#earlierOfKey(row, isInTheWay) === undefined;
    });
    // A row of one destination that waits holds back those of others.
    const isFree = (row: ModelRow) =>
      this.#earlierOfKey(row, (one) => taken.has(one) && isSameLane(row, one) && !free.includes(one)) === undefined;
    const claimed = free.filter(isFree).toSorted((a, b) => a.place - b.place || a.position - b.position);
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
    const waits = (one: ModelRow) => this.#waits(row, one, heldTokens, false);
    if (this.#earlierOfKey(row, (one) => !isSameLane(row, one) && waits(one)) !== undefined) return true;
    const first = this.#earlierOfKey(row, (one) => isSameLane(row, one) && waits(one));
    if (first === undefined) {
      return row.state === "processing" || !isAsked(queues, row) || (row.attempt > 0 && !this.isDue(row));
    }
    // A late delivery is found later.
    return first.position > row.position || this.#isPassed(first, queues, heldTokens);
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
    const faults = new Map(ids.filter((id) => !this.has(id)).map((id) => [id, `${id} is not there`]));
    const claimed = ids.filter((id) => this.has(id)).map((id) => this.row(id));
    for (const row of claimed) {
      const isBefore = (one: ModelRow) => isSameLane(row, one) && claimed.slice(0, claimed.indexOf(row)).includes(one);
      const overtaken = this.#earlierOfKey(
        row,
        (one) => precedes(one, row) && this.#waits(row, one, heldTokens, queues === undefined) && !isBefore(one),
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
      if (isByDestination) row.label = row.destination;
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
      (row) =>
        (row.state === "sent" || row.state === "dead") &&
        !row.isExpanded &&
        row.finishedAtStep <= step &&
        row.updatedAt <= now,
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
    else ofKey.splice(ofKey.findLastIndex(({ place }) => place <= row.place) + 1, 0, row);
  }

  /** The first row of its key that is earlier and answers to a description. */
  #earlierOfKey({ key, place }: ModelRow, isMeant: (row: ModelRow) => boolean): ModelRow | undefined {
    const ofKey = key === null ? [] : (this.#ofKey.get(key) ?? []);
    const found = ofKey.find((one) => one.place >= place || isMeant(one));
    return found === undefined || found.place >= place ? undefined : found;
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

export const isParked = ({ state, dueAt }: ModelRow): boolean => state === "pending" && dueAt === PARKED;

const hasPayload = ({ oddity }: ModelRow): boolean => oddity !== "payload NULL";

function insertInOrder(rows: ModelRow[], row: ModelRow): void {
  const behind = rows.findLastIndex(({ position }) => position < row.position) + 1;
  rows.splice(behind, 0, row);
}

/** Topics are called as the destinations to which they go; a row without one is always claimed, a message of a list never. */
function isAsked({ room, exceptIds = [] }: ClaimQueues, { id, topic, destination }: ModelRow): boolean {
  return !exceptIds.includes(id) && (destination === null ? topic === null : room.has(destination));
}

/** The deliveries of a key to one destination are a lane, and so are its rows that are none. */
function isSameLane(
  one: Pick<ModelRow, "destination" | "messageId">,
  other: Pick<ModelRow, "destination" | "messageId">,
): boolean {
  if (one.messageId === null || other.messageId === null) return one.messageId === other.messageId;
  return one.destination === other.destination;
}

/**
 * The order that receivers see: whether a row comes before another one of its key. Rows that are no deliveries come in their
 * order wherever they go; a message that is not expanded may go anywhere.
 */
export function precedes(one: ModelRow, other: ModelRow): boolean {
  if (one.key === null || one.key !== other.key || one.place >= other.place) return false;
  if (one.messageId === null && (other.messageId === null || one.topic === LIST_TOPIC)) return true;
  return one.destination === other.destination;
}

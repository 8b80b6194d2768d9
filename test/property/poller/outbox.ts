import { StoreError } from "../../../src/model/errors.ts";
import type { ClaimedRow, ClaimToken, MessageId, Outcome } from "../../../src/model/rows.ts";
import type { DestinationStore } from "../../../src/ports/destinationStore.ts";
import type {
  ClaimRequest,
  ClaimResult,
  ExpandResult,
  Expansion,
  Lease,
  ListStore,
  OutboxBacklog,
  OutboxGlance,
  OutboxStore,
  ReceiptClaim,
  RelabelResult,
  SettledRows,
  UnexpandedMessage,
} from "../../../src/ports/store.ts";
import { LIST_TOPIC, PAYLOAD } from "../store/model.ts";
import { FIRST_TOPIC } from "./plan.ts";
import type { World } from "./world.ts";

/** A held statement fails after this time, as with the time limit of a renewal. */
const HELD_MS = 4000;

/**
 * The outbox as one replica sees it: each statement takes time to arrive, happens at one moment, and takes time to answer. If the way is broken, nobody knows
 * whether it happened.
 */
export class SimulatedOutbox implements OutboxStore, ListStore {
  readonly #world: World;
  readonly #slot: number;
  readonly #wait: (ms: number) => Promise<void>;
  #brokenUntil = 0;
  /** While it is broken: statements get no answer, instead of failing. */
  #isHeld = false;
  #closed = false;
  readonly hasQueues = true;

  /** @param wait lets time of the replica pass */
  constructor(world: World, slot: number, wait: (ms: number) => Promise<void>) {
    this.#world = world;
    this.#slot = slot;
    this.#wait = wait;
  }

  /** @param until by the world's clock */
  breakWay(way: "cut" | "held", until: number): void {
    this.#isHeld = way === "held";
    this.#brokenUntil = until;
  }

  /** Its replica has stopped: any further statement is a broken rule. */
  close(): void {
    this.#closed = true;
  }

  async check(): Promise<void> {}

  claim(request: ClaimRequest): Promise<ClaimResult> {
    return this.#run((world) => {
      const model = world.database;
      const { rows: ids, ...found } = model.claimable(request);
      model.claim(this.#slot, ids, request.token, request);
      world.claimedRows += ids.length;
      const rows = ids.map((id) => claimedRow(world, id, request));
      const { room, exceptIds = [] } = request.queues ?? { room: new Map() };
      const mayExpand = world.list.some((each) => room.has(each));
      const waiting = mayExpand ? model.unexpanded().filter(({ id }) => !exceptIds.includes(id)) : [];
      const lists = waiting.slice(0, request.limit).map(({ id }) => ({ id, topic: LIST_TOPIC }));
      model.labelAll();
      return { rows, lists, ...found };
    });
  }

  expand(expansions: readonly Expansion[]): Promise<ExpandResult> {
    return this.#run((world) => {
      const waiting = new Set(world.database.unexpanded().map(({ id }) => id));
      const expanded = expansions.filter(({ id }) => waiting.has(id));
      for (const each of expanded) world.expand(each);
      return { expanded: expanded.length, refused: [] };
    });
  }

  messagesToExpand(ids: readonly MessageId[]): Promise<readonly UnexpandedMessage[]> {
    return this.#run(({ database }) =>
      database
        .unexpanded()
        .filter(({ id }) => ids.includes(id))
        .map(({ id, key, attempt }) => {
          return { id, topic: LIST_TOPIC, key, payload: PAYLOAD, headers: {}, attempt, createdAt: new Date(0) };
        }),
    );
  }

  /**
   * Stores a row that its replica has received, and claims it if no other row of its key holds it back. Who repeats
   * it has it stored once.
   */
  async insert(id: MessageId, key: string | null, claim: ReceiptClaim | undefined): Promise<void> {
    let claimed: readonly ClaimedRow[] = [];
    const receipt = this.#run((world) => {
      const model = world.database;
      const topic = world.drawTopic();
      const isFree = model.isFree(key, topic, false, claim?.request.heldTokens ?? []);
      // The poller expands those of a list.
      if (!world.insert(id, key, topic) || claim === undefined || !isFree || topic === LIST_TOPIC) return [];
      model.claim(this.#slot, [id], claim.request.token, claim.request);
      world.claimedRows += 1;
      return [claimedRow(world, id, claim.request)];
    });
    try {
      claimed = await receipt;
    } finally {
      claim?.end(claimed);
    }
  }

  glance(overdueMs: number): Promise<OutboxGlance> {
    return this.#run(({ database: { rows, now }, watcher }) => ({
      isOverdue: rows.some(
        ({ state, dueAt, createdAt }) => state === "pending" && Math.max(dueAt, createdAt) <= now - overdueMs,
      ),
      isWatched: watcher !== undefined,
    }));
  }

  renew(tokens: readonly ClaimToken[], lease: Lease): Promise<ReadonlySet<MessageId>> {
    return this.#run(({ database }) => database.renew(tokens, lease));
  }

  settle(outcomes: readonly Outcome[]): Promise<SettledRows> {
    return this.#run(({ database }) => ({ closed: database.settle(outcomes).closed, refused: new Map() }));
  }

  reclaim(limit: number): Promise<number> {
    return this.#run(({ database }) => {
      const expired = database.expired().slice(0, limit);
      for (const row of expired) database.reclaim(row);
      return expired.length;
    });
  }

  clock(): Promise<number> {
    return this.#run(({ database }) => database.now);
  }

  async relabel(): Promise<RelabelResult> {
    throw new Error("the routes do not change here");
  }

  async destinationsWaiting(): Promise<readonly string[]> {
    return [];
  }

  async backlog(): Promise<OutboxBacklog> {
    throw new Error("no gauge is read here");
  }

  /** What replicas share about destinations, over the same way. */
  get destinations(): DestinationStore {
    return new Proxy(this.#world.destinations, {
      get: (shared, name) => {
        const value: unknown = Reflect.get(shared, name);
        if (typeof value !== "function") return value;
        return (...parameters: unknown[]) => this.#run(() => value.apply(shared, parameters) as unknown);
      },
    });
  }

  async #run<T>(statement: (world: World) => T | Promise<T>): Promise<T> {
    const world = this.#world;
    if (this.#closed) world.breaks("a replica that has stopped asks the database");
    await this.#wait(world.draw(world.plan.databaseMs));
    const fate = this.#fate();
    const result = fate === "not executed" ? undefined : await statement(world);
    await this.#wait(this.#isHeld && fate !== "answered" ? HELD_MS : world.draw(world.plan.databaseMs));
    // An answer that is on its way when that breaks is lost too.
    if (fate !== "answered" || this.#isBroken()) throw new StoreError("unavailable", "the connection broke");
    return result as T;
  }

  #fate(): "answered" | "executed" | "not executed" {
    if (!this.#isBroken()) return "answered";
    return this.#world.random() < 0.5 ? "executed" : "not executed";
  }

  #isBroken(): boolean {
    return this.#world.clock.monotonic() < this.#brokenUntil;
  }
}

function claimedRow(world: World, id: MessageId, { token }: ClaimRequest): ClaimedRow {
  const { key, topic, destination, messageId, attempt, position } = world.database.row(id);
  const isRouted = messageId === null && (destination === null || world.routed.includes(destination));
  const unused = {
    ...(messageId === null ? {} : { messageId }),
    topic: isRouted || messageId !== null ? topic : FIRST_TOPIC,
    destination: isRouted ? null : destination,
    isPinned: !isRouted,
    aggregateType: null,
    headers: {},
    createdAt: new Date(0),
    maxAttempts: world.plan.parking?.maxAttempts ?? Number.POSITIVE_INFINITY,
    expiresInMs: null,
  };
  return { id, key, attempt, sequence: String(position), payload: PAYLOAD, claimToken: token, ...unused };
}

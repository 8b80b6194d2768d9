import { bucketKeyOf } from "../../../src/model/cells.ts";
import { StoreError } from "../../../src/model/errors.ts";
import type { ClaimToken, InsertResult, MessageId, NewInboxRow } from "../../../src/model/rows.ts";
import {
  type BucketAt,
  type BucketRow,
  type BucketStore,
  type CopiedRows,
  type FinishedRow,
  type Page,
  type StoredRow,
  SUPERSEDED,
  type UnfinishedRow,
} from "../../../src/ports/bucketStore.ts";

/** The methods of the port, each done at once: one statement. */
type Statements = {
  readonly [Method in keyof BucketStore]: (
    ...args: Parameters<BucketStore[Method]>
  ) => Awaited<ReturnType<BucketStore[Method]>>;
};

interface Bucket extends Omit<BucketRow, "hasLeaseEnded"> {
  readonly leaseUntil: number | null;
}

interface InboxRow {
  readonly id: MessageId;
  readonly source: string;
  readonly idempotencyKey: string;
  readonly aggregateId: string | null;
  readonly state: "pending" | "processed";
  readonly createdAt: number;
}

/** What a database has at one moment. Rows are replaced, never changed. */
export interface Tables {
  readonly buckets: ReadonlyMap<number, Bucket>;
  /** By id. */
  readonly inbox: ReadonlyMap<string, InboxRow>;
  /** Of messages that are relayed and not yet delivered, in the order of `sequence`. */
  readonly outbox: readonly MessageId[];
}

/**
 * The tables of one cell in memory, with the statements on buckets as `bucketsSql.ts` has them: `buckets.test.ts` holds
 * them to PostgreSQL's. Each is done at once, which is what their locks and snapshots amount to.
 */
export class MemoryCell implements Statements {
  /** Of the running server. */
  server: string;
  readonly #now: () => number;
  #buckets = new Map<number, Bucket>();
  #inbox = new Map<string, InboxRow>();
  #outbox: readonly MessageId[] = [];
  /** Rises with each change. */
  version = 0;

  /** @param now of the database's clock, in ms */
  constructor(server: string, now: () => number) {
    this.server = server;
    this.#now = now;
  }

  get tables(): Tables {
    return { buckets: new Map(this.#buckets), inbox: new Map(this.#inbox), outbox: this.#outbox };
  }

  /** As where a backup is restored. */
  set tables({ buckets, inbox, outbox }: Tables) {
    this.#buckets = new Map(buckets);
    this.#inbox = new Map(inbox);
    this.#outbox = outbox;
    this.version += 1;
  }

  all() {
    const rows = [...this.#buckets.values()].map(({ leaseUntil, ...row }) => ({
      ...row,
      hasLeaseEnded: leaseUntil !== null && leaseUntil < this.#now(),
    }));
    return { rows, server: this.server };
  }

  open(buckets: readonly BucketAt[]): void {
    for (const { bucket, epoch } of buckets) if (this.#isNewer(bucket, epoch)) this.#put({ ...FREE, bucket, epoch });
  }

  close(buckets: readonly number[], to: string, { token, leaseMs }: { token: ClaimToken; leaseMs: number }) {
    return this.#change(buckets, (row) => {
      if (row.state !== "open") return undefined;
      return { ...row, state: "moving", otherCell: to, token, leaseUntil: this.#now() + leaseMs };
    });
  }

  renew({ token, leaseMs }: { token: ClaimToken; leaseMs: number }) {
    return this.#change([...this.#buckets.keys()], (row) => {
      if (row.state !== "moving" || row.token !== token) return undefined;
      return { ...row, leaseUntil: this.#now() + leaseMs };
    });
  }

  reopen(buckets: readonly number[], token: ClaimToken | null) {
    const isFree = ({ token: own, leaseUntil }: Bucket) =>
      token === null ? leaseUntil !== null && leaseUntil < this.#now() : own === token;
    return this.#change(buckets, (row) => (row.state === "moving" && isFree(row) ? { ...row, ...FREE } : undefined));
  }

  expect(buckets: readonly BucketAt[], move: { from: string; token: ClaimToken; server?: string | undefined }) {
    if (move.server !== undefined && move.server !== this.server) return [];
    const noted = buckets.filter(({ bucket, epoch }) => this.#isNewer(bucket, epoch));
    for (const { bucket, epoch } of noted) {
      const { from: otherCell, token } = move;
      this.#put({ bucket, epoch, state: "arriving", otherCell, token, leaseUntil: null });
    }
    return noted.map(({ bucket }) => bucket);
  }

  leave(buckets: readonly number[], token: ClaimToken): readonly BucketAt[] {
    const left = this.#change(buckets, (row) => {
      if (row.state !== "moving" || row.token !== token) return undefined;
      return { ...row, state: "left", epoch: row.epoch + 1, leaseUntil: null };
    });
    return left.map((bucket) => ({ bucket, epoch: this.#buckets.get(bucket)?.epoch ?? 0 }));
  }

  arrive(buckets: readonly BucketAt[], token: ClaimToken) {
    return this.#changeGiven(buckets, (row, { epoch }) => {
      const isExpected = row.state === "open" || (row.state === "arriving" && row.token === token);
      return row.epoch === epoch && isExpected ? { ...row, ...FREE } : undefined;
    });
  }

  takeBack(buckets: readonly (BucketAt & { readonly nextEpoch: number })[]) {
    return this.#changeGiven(buckets, (row, { epoch, nextEpoch }) =>
      row.epoch === epoch && row.state === "left" ? { ...row, ...FREE, epoch: nextEpoch } : undefined,
    );
  }

  supersede(buckets: readonly (BucketAt & { readonly cell: string })[]) {
    return this.#changeGiven(buckets, (row, { epoch, cell }) => {
      if (row.epoch >= epoch || (row.state !== "open" && row.state !== "moving")) return undefined;
      return { ...row, state: "left", epoch, otherCell: cell, token: SUPERSEDED, leaseUntil: null };
    });
  }

  /** The rows of the outbox in a page of their own, as they come last. */
  unfinished(after: string | undefined, _limit: number): Page<UnfinishedRow> {
    const waits = (row: InboxRow, waitsFor: "relay" | "turn", key: string | null): UnfinishedRow => ({
      id: row.id,
      received: row,
      key,
      waitsFor,
      dueInMs: 0,
    });
    if (after === undefined) {
      const pending = [...this.#inbox.values()].filter(({ state }) => state === "pending");
      return { rows: pending.map((row) => waits(row, "relay", null)), next: "outbox" };
    }
    const keyed = this.#outbox.flatMap((id) => this.#inbox.get(id) ?? []);
    return { rows: keyed.map((row) => waits(row, "turn", bucketKeyOf(row))), next: undefined };
  }

  finished(from: string | undefined, limit: number): Page<FinishedRow> {
    const [time, id] = from === undefined ? [Number.NEGATIVE_INFINITY, ""] : (JSON.parse(from) as [number, string]);
    const rows = [...this.#inbox.values()]
      .filter((row) => row.state === "processed" && (row.createdAt > time || (row.createdAt === time && row.id > id)))
      .sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1))
      .slice(0, limit);
    const last = rows.at(-1);
    return {
      rows: rows.map((row) => ({ ...row, bytes: 1 })),
      next: last === undefined || rows.length < limit ? undefined : JSON.stringify([last.createdAt, last.id]),
    };
  }

  awaitReceipts(): boolean {
    return true;
  }

  positionBefore(ms: number) {
    const nowMs = this.#now();
    return { position: JSON.stringify([nowMs - ms, ""]), nowMs };
  }

  read(ids: readonly MessageId[]): readonly StoredRow[] {
    return ids.flatMap((id) => {
      const row = this.#inbox.get(id);
      return row?.state === "processed" ? [{ ...row, createdAt: String(row.createdAt) }] : [];
    });
  }

  copy(rows: readonly StoredRow[]): CopiedRows {
    const stored = rows.filter((row) => {
      const { id, source = "", idempotencyKey = "", aggregateId = null, createdAt } = row;
      const copy = {
        id: id as MessageId,
        source: String(source),
        idempotencyKey: String(idempotencyKey),
        aggregateId,
        state: "processed",
        createdAt: Number(createdAt),
      } as const;
      const older = [...this.#inbox.values()].find(
        (each) => each.source === copy.source && each.idempotencyKey === copy.idempotencyKey,
      );
      if (older?.state === "processed" && older.createdAt < copy.createdAt) this.#inbox.delete(older.id);
      return this.#store(copy);
    });
    return { stored: stored.length, refused: new Map() };
  }

  /** As `InboxStore.insert`, in one commit. @throws StoreError `elsewhere` */
  insert(rows: readonly NewInboxRow[]): readonly InsertResult[] {
    const isOpen = ({ bucket }: NewInboxRow) => bucket === undefined || this.#buckets.get(bucket)?.state === "open";
    const isHere = ({ bucketsOn }: NewInboxRow) => bucketsOn === undefined || bucketsOn === this.server;
    if (!rows.every((row) => isOpen(row) && isHere(row)))
      throw new StoreError("elsewhere", "a bucket of the rows is not open here");
    return rows.map(({ id, source, idempotencyKey, aggregateId }) => {
      const row = { id, source, idempotencyKey, aggregateId, state: "pending", createdAt: this.#now() } as const;
      return { kind: this.#store(row) ? "stored" : "duplicate" };
    });
  }

  /** Moves all received rows to the outbox, in the order of their receipt. */
  relay(): void {
    for (const row of this.#inbox.values()) {
      if (row.state !== "pending") continue;
      this.#inbox.set(row.id, { ...row, state: "processed" });
      this.#outbox = [...this.#outbox, row.id];
      this.version += 1;
    }
  }

  /** Delivers all that is in the outbox. @returns its messages in their order */
  deliver(): readonly InboxRow[] {
    const delivered = this.#outbox.flatMap((id) => this.#inbox.get(id) ?? []);
    this.#outbox = [];
    this.version += delivered.length;
    return delivered;
  }

  /** @returns false for one whose id or key is here */
  #store(row: InboxRow): boolean {
    const isHere = ({ id, source, idempotencyKey }: InboxRow) =>
      id === row.id || (source === row.source && idempotencyKey === row.idempotencyKey);
    if ([...this.#inbox.values()].some(isHere)) return false;
    this.#inbox.set(row.id, row);
    this.version += 1;
    return true;
  }

  /** Whether a bucket may be written under an epoch: what arrives may still be opened, or replaced by another move. */
  #isNewer(bucket: number, epoch: number): boolean {
    const row = this.#buckets.get(bucket);
    return row === undefined || row.epoch < epoch || (row.epoch === epoch && row.state === "arriving");
  }

  #put(row: Bucket): void {
    this.#buckets.set(row.bucket, row);
    this.version += 1;
  }

  /** @param change returns the new row, or undefined for one that stays. @returns the buckets changed */
  #change(buckets: readonly number[], change: (row: Bucket) => Bucket | undefined): readonly number[] {
    return this.#changeGiven(
      buckets.map((bucket) => ({ bucket })),
      change,
    );
  }

  #changeGiven<T extends { readonly bucket: number }>(
    given: readonly T[],
    change: (row: Bucket, of: T) => Bucket | undefined,
  ): readonly number[] {
    return given.flatMap((of) => {
      const row = this.#buckets.get(of.bucket);
      const changed = row && change(row, of);
      if (changed === undefined) return [];
      this.#put(changed);
      return [of.bucket];
    });
  }
}

/** Of a bucket that is open. */
const FREE = { state: "open", otherCell: null, token: null, leaseUntil: null } as const;

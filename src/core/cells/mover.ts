import { errorText, isRefused, StoreError } from "../../model/errors.ts";
import { groupBy } from "../../model/groups.ts";
import type { ClaimToken } from "../../model/rows.ts";
import type { BucketStore } from "../../ports/bucketStore.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { linked, sleep, timeout, waitOrAbort } from "../../time/wait.ts";
import { Copies } from "./copies.ts";
import { Patience } from "./patience.ts";
import type { Cell } from "./places.ts";
import type { PlannedMove } from "./shares.ts";
import { type Unfinished, unfinishedOf, type Waiting, waitingText } from "./unfinished.ts";

/** What became of a planned move. */
export interface MovedBucket extends PlannedMove {
  /** `held`: it is where it was, since rows wait there. `failed`: the text says where it is. */
  readonly outcome: "moved" | "held" | "failed";
  /** Why it was not moved. */
  readonly reason: string | undefined;
}

export interface MoverOptions {
  readonly cells: readonly Cell[];
  /** The server of a cell as the plan knows it; by default as it is when its move begins. */
  readonly serverOf?: (cell: string) => string | undefined;
  /** Sources with an order of their own (`keyScope: source`). */
  readonly ownKeySources: readonly string[];
  readonly newToken: () => ClaimToken;
  readonly clock: Clock;
  readonly log: Log;
  /**
   * Time in ms for which a bucket is closed until its rows are finished; up to four times that for one whose rows leave
   * at a pace that lets it. Default 5000.
   */
  readonly waitMs?: number | undefined;
  /** Most buckets closed at a time. Default 64. */
  readonly chunk?: number;
  /** Told after each chunk, and after each copying pass. */
  readonly onProgress?: (progress: { readonly moved: number; readonly of: number; readonly copied: number }) => void;
}

/**
 * Moves buckets between cells: it copies their finished rows, closes them, waits until nothing of them is unfinished in
 * the old cell, copies the rest, and opens them in the new one. Nothing is deleted. Whatever ends it, each bucket is open
 * in one cell, or will be as soon as some process reads the maps.
 */
export class Mover {
  readonly #options: MoverOptions;
  readonly #waitMs: number;
  readonly #chunk: number;

  constructor(options: MoverOptions) {
    this.#options = { ...options, cells: options.cells.map(namingErrors) };
    this.#waitMs = options.waitMs ?? WAIT_MS;
    this.#chunk = options.chunk ?? CHUNK;
  }

  /**
   * @param signal ends it between two chunks, or opens the closed ones again
   * @returns what became of each, in any order; buckets that it did not come to are `failed`
   */
  async move(plan: readonly PlannedMove[], signal: AbortSignal): Promise<readonly MovedBucket[]> {
    const results: MovedBucket[] = [];
    for (const [from, moves] of groupBy(plan, (move) => move.from)) {
      const part = from === undefined ? this.#openFree(moves) : this.#moveFrom(from, moves, signal);
      results.push(...(await part));
    }
    return results;
  }

  /** Those that no cell has. */
  async #openFree(moves: readonly PlannedMove[]): Promise<readonly MovedBucket[]> {
    const opened = [...groupBy(moves, ({ to }) => to)].map(async ([to, into]): Promise<readonly MovedBucket[]> => {
      try {
        const target = this.#cell(to);
        await target.open(into.map(({ bucket, epoch = 1 }) => ({ bucket, epoch })));
        const { rows } = await target.all();
        const open = new Set(rows.flatMap(({ bucket, state }) => (state === "open" ? [bucket] : [])));
        // Where another command was faster, it may have moved on by now.
        return into.map((move) =>
          open.has(move.bucket)
            ? { ...move, outcome: "moved", reason: undefined }
            : { ...move, outcome: "failed", reason: MEANWHILE },
        );
      } catch (error) {
        return into.map((move) => ({ ...move, outcome: "failed", reason: errorText(error) }));
      }
    });
    return (await Promise.all(opened)).flat();
  }

  async #moveFrom(name: string, moves: readonly PlannedMove[], signal: AbortSignal): Promise<readonly MovedBucket[]> {
    const results = new Map<number, MovedBucket>();
    const run = new MoveRun(this.#options, name, this.#cell(name), moves, this.#waitMs, (move, outcome, reason) => {
      results.set(move.bucket, { ...move, outcome, reason });
    });
    try {
      await run.copyBefore(signal);
      for (let at = 0; at < moves.length; at += this.#chunk) {
        signal.throwIfAborted();
        await run.moveChunk(moves.slice(at, at + this.#chunk), signal);
        const moved = [...results.values()].filter(({ outcome }) => outcome === "moved").length;
        this.#options.onProgress?.({ moved, of: moves.length, copied: run.copied });
      }
    } catch (error) {
      const reason = errorText(error);
      for (const move of moves)
        if (!results.has(move.bucket)) results.set(move.bucket, { ...move, outcome: "failed", reason });
    }
    return [...results.values()];
  }

  #cell(name: string): BucketStore {
    const cell = this.#options.cells.find((each) => each.name === name);
    if (cell === undefined) throw new Error(`there is no cell ${name}`);
    return cell.store.buckets;
  }
}

/** The cell, with its name in the errors of its buckets. */
function namingErrors({ name, store }: Cell): Cell {
  const buckets = new Proxy(store.buckets, {
    get: (target, key: keyof BucketStore) => {
      const method = target[key] as (...given: readonly unknown[]) => Promise<unknown>;
      return async (...given: readonly unknown[]) => {
        try {
          return await method.call(target, ...given);
        } catch (error) {
          if (!(error instanceof StoreError)) throw error;
          throw new StoreError(error.code, `in the cell ${name} ${error.message}`, { cause: error.cause });
        }
      };
    },
  });
  return { name, store: { buckets } };
}

const WAIT_MS = 5000;
const CHUNK = 64;

/** Added to the wait: for the last copying pass. */
const LAST_PASS_MS = 3000;
/** Of closed buckets. A mover that died leaves them closed as long. */
const LEASE_MS = 10_000;
const LOOK_EVERY_MS = 100;
/** A copying pass that finds fewer rows is short. */
const SHORT_PASS = 200;
const MOST_PASSES = 20;
const CLOSE_TRIES = 5;
const CLOSE_PAUSE_MS = 1000;

const MEANWHILE = "another command has opened it meanwhile: svc cells list tells where it is";

const restartedText = (from: string, cell: string): string =>
  `the database of ${from} or ${cell} was restarted during the move, and may have gone back to before it`;

const triggerText = (cell: string): string => `a trigger on the table of the buckets of ${cell}`;

const bucketsOf = (of: readonly { readonly bucket: number }[]): readonly number[] => of.map(({ bucket }) => bucket);

interface Changes<T> {
  readonly changed: readonly T[];
  /** Why buckets were refused. */
  readonly refused: ReadonlyMap<number, string>;
}

/** Changes buckets together or, where a trigger of the owner refuses some, each alone: it holds up no other. */
async function changeEach<B extends { readonly bucket: number }, T>(
  buckets: readonly B[],
  change: (part: readonly B[]) => Promise<readonly T[]>,
): Promise<Changes<T>> {
  const refused = new Map<number, string>();
  const changed: T[] = [];
  for (const part of [buckets, ...buckets.map((each) => [each])]) {
    try {
      changed.push(...(await change(part)));
      if (part === buckets) break;
    } catch (error) {
      if (!isRefused(error)) throw error;
      const [only] = part;
      if (part !== buckets && only !== undefined) refused.set(only.bucket, errorText(error));
    }
  }
  return { changed, refused };
}

type Report = (move: PlannedMove, outcome: MovedBucket["outcome"], reason?: string) => void;

/** The moves out of one cell. */
class MoveRun {
  readonly #options: MoverOptions;
  readonly #from: BucketStore;
  readonly #waitMs: number;
  readonly #report: Report;
  readonly #copies: Copies;
  readonly #prefixes: readonly string[];
  /** The cells of those that are still to be moved: each pass copies for all of them, as the next one begins behind it. */
  readonly #targets: Map<number, BucketStore>;
  /** One refused row for each reason: buckets with the same reason get the same message. */
  readonly #refused = new Map<string, string>();
  /** The servers of those cells, as they were before the first copy. */
  readonly #servers = new Map<BucketStore, string | undefined>();
  readonly #name: string;
  /** That of the old cell. */
  #server: string | undefined;
  /** Rows so far. */
  copied = 0;

  constructor(
    options: MoverOptions,
    name: string,
    from: BucketStore,
    moves: readonly PlannedMove[],
    waitMs: number,
    report: Report,
  ) {
    this.#options = options;
    this.#name = name;
    this.#from = from;
    this.#waitMs = waitMs;
    this.#report = report;
    const byBucket = new Map(moves.map((move) => [move.bucket, move]));
    this.#copies = new Copies(from, options.clock, (bucket, id, reason) => {
      const move = byBucket.get(bucket);
      if (move === undefined || !this.#isToMove(move)) return;
      const refusal = `${move.to}: ${reason}`;
      const example = this.#refused.get(refusal) ?? id;
      this.#refused.set(refusal, example);
      this.#leaveOut(move, "failed", `the cell ${refusal}; for example the row ${example} of the cell ${name}`);
    });
    this.#prefixes = options.ownKeySources.map((source) => `${source}:`);
    const stores = new Map(options.cells.map(({ name, store }) => [name, store.buckets]));
    this.#targets = new Map(
      moves.map(({ bucket, to }) => {
        const target = stores.get(to);
        if (target === undefined) throw new Error(`there is no cell ${to}`);
        return [bucket, target];
      }),
    );
  }

  /** Copies while receipts go on, until little is left. @throws StoreError */
  async copyBefore(signal: AbortSignal): Promise<void> {
    this.#server =
      this.#options.serverOf?.(this.#name) ?? (await waitOrAbort(this.#from.all(), signal, "reading buckets")).server;
    for (const target of new Set(this.#targets.values()))
      this.#servers.set(target, (await waitOrAbort(target.all(), signal, "reading buckets")).server);
    for (let passes = 0; passes < MOST_PASSES; passes += 1) {
      await this.#copies.mark(signal);
      await this.#unfinished(signal);
      const found = await this.#pass(signal);
      if (passes > 0 && found < SHORT_PASS) return;
    }
  }

  /** @throws StoreError, and the reason of the signal: then the closed buckets of the chunk are open again */
  async moveChunk(chunk: readonly PlannedMove[], signal: AbortSignal): Promise<void> {
    const ready = await this.#readyOf(chunk, signal);
    if (ready.length === 0) return;
    await this.#pass(signal);
    const token = this.#options.newToken();
    for (const [to, moves] of groupBy(ready, (move) => move.to)) {
      const copied = moves.filter((move) => this.#isToMove(move));
      if (copied.length === 0) continue;
      const closed = await this.#close(copied, to, token, signal);
      if (closed.length > 0) await this.#moveClosed(closed, token, signal);
    }
  }

  /** Those whose rows can be finished in time: others are not closed at all. */
  async #readyOf(chunk: readonly PlannedMove[], signal: AbortSignal): Promise<readonly PlannedMove[]> {
    const wanted = chunk.filter((move) => this.#isToMove(move));
    if (wanted.length === 0) return [];
    await this.#copies.mark(signal);
    const { waiting } = await this.#unfinished(signal);
    const isLong = ({ counts, dueInMs }: Waiting) => dueInMs > this.#waitMs || counts.has("pull");
    const held = this.#hold(wanted, new Map([...waiting].filter(([, its]) => isLong(its))));
    return wanted.filter((move) => !held.includes(move));
  }

  async #close(
    moves: readonly PlannedMove[],
    to: string,
    token: ClaimToken,
    signal: AbortSignal,
  ): Promise<readonly PlannedMove[]> {
    const { changed, refused } = await changeEach(moves, (part) => this.#closeAll(bucketsOf(part), to, token, signal));
    const closed = new Set(changed);
    for (const move of moves) {
      if (closed.has(move.bucket)) continue;
      const reason = `it was not open: another move may be under way, or ${triggerText(this.#name)} keeps it open`;
      this.#leaveOut(move, "failed", refused.get(move.bucket) ?? reason);
    }
    return moves.filter(({ bucket }) => closed.has(bucket));
  }

  async #closeAll(
    buckets: readonly number[],
    to: string,
    token: ClaimToken,
    signal: AbortSignal,
  ): Promise<readonly number[]> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#from.close(buckets, to, { token, leaseMs: LEASE_MS });
      } catch (error) {
        // A receipt takes long; those that wait for it and for us go on first.
        if (!(error instanceof StoreError && error.code === "contention") || tries >= CLOSE_TRIES) throw error;
        await sleep(CLOSE_PAUSE_MS, signal);
      }
    }
  }

  /**
   * Each bucket leaves as soon as nothing of it waits, whatever its neighbours wait for.
   *
   * @param moves of closed buckets, which are open in one of the two cells at the end
   */
  async #moveClosed(moves: readonly PlannedMove[], token: ClaimToken, signal: AbortSignal): Promise<void> {
    using renewals = this.#renew(token);
    const patience = new Patience(this.#options.clock, this.#waitMs);
    let left = moves;
    try {
      for (;;) {
        using limit = timeout(this.#waitMs + LAST_PASS_MS, "the move of closed buckets", signal);
        const { waiting } = await this.#unfinished(limit.signal);
        await this.#leaveFinished(
          left.filter(({ bucket }) => !waiting.has(bucket)),
          token,
          limit.signal,
        );
        left = left.filter(({ bucket }) => waiting.has(bucket));
        left = await this.#reopenRefused(left, token);
        const late = patience.lateOf(left, waiting);
        await this.#reopen(this.#hold(late, waiting), token);
        left = left.filter((move) => !late.includes(move));
        if (left.length === 0) return;
        await sleep(LOOK_EVERY_MS, signal);
      }
    } finally {
      renewals.end();
      // What has left stays so.
      if (left.length > 0) await this.#reopen(left, token).catch(() => {});
    }
  }

  /** @param moves of closed buckets of which nothing waited a moment ago */
  async #leaveFinished(moves: readonly PlannedMove[], token: ClaimToken, signal: AbortSignal): Promise<void> {
    if (moves.length === 0) return;
    await this.#pass(signal);
    const copied = await this.#reopenRefused(moves, token);
    // An operator may have replayed a row meanwhile.
    const { waiting } = await this.#unfinished(signal);
    const back = this.#hold(copied, waiting);
    await this.#reopen(back, token);
    await this.#arrive(
      copied.filter((move) => !back.includes(move)),
      token,
      signal,
    );
  }

  /**
   * The new cell notes that it has the copies, then the old one gives the buckets up: then whoever reads the maps ends
   * the move, or takes the buckets back where the new cell has lost its note.
   */
  async #arrive(moves: readonly PlannedMove[], token: ClaimToken, signal: AbortSignal): Promise<void> {
    const [first] = moves;
    const target = first === undefined ? undefined : this.#targets.get(first.bucket);
    if (first === undefined || target === undefined) return;
    const expected = await changeEach(moves, (part) => this.#expectIn(target, part, token, signal));
    const noted = new Set(expected.changed);
    signal.throwIfAborted();
    const leaving = await changeEach(
      moves.filter(({ bucket }) => noted.has(bucket)),
      (part) => this.#from.leave(bucketsOf(part), token),
    );
    const gone = new Set(bucketsOf(leaving.changed));
    const arriving = await changeEach(leaving.changed, (part) =>
      waitOrAbort(target.arrive(part, token), signal, "opening buckets"),
    ).catch(errorText);
    const kept = new Map<PlannedMove, string>();
    for (const move of moves) {
      const { bucket, to } = move;
      const refusal = expected.refused.get(bucket) ?? leaving.refused.get(bucket);
      if (refusal !== undefined) kept.set(move, refusal);
      else if (!noted.has(bucket))
        kept.set(move, `${restartedText(this.#name, to)}, or ${triggerText(to)} keeps it out: run this again`);
      else if (!gone.has(bucket))
        kept.set(
          move,
          `its lease ended before the move did, its cell went back, or ${triggerText(this.#name)} keeps it`,
        );
      else this.#tellArrival(move, arriving);
    }
    await this.#reopen([...kept.keys()], token);
    for (const [move, reason] of kept) this.#leaveOut(move, "failed", reason);
  }

  /** @param arriving those that are open in the new cell, or why none is known to be */
  #tellArrival(move: PlannedMove, arriving: Changes<number> | string): void {
    const { bucket, to } = move;
    const refusal = typeof arriving === "string" ? arriving : arriving.refused.get(bucket);
    if (typeof arriving !== "string" && arriving.changed.includes(bucket)) this.#leaveOut(move, "moved");
    else if (refusal !== undefined)
      this.#leaveOut(move, "failed", `it has left, and is open in ${to} when that takes it: ${refusal}`);
    else
      this.#leaveOut(
        move,
        "failed",
        `${restartedText(this.#name, to)}, or ${triggerText(to)} keeps it closed: svc cells list tells where it is`,
      );
  }

  /** @returns those that the cell has noted: none where it may have lost copies, or the old cell an earlier move */
  async #expectIn(
    target: BucketStore,
    moves: readonly PlannedMove[],
    token: ClaimToken,
    signal: AbortSignal,
  ): Promise<readonly number[]> {
    const { rows, server } = await waitOrAbort(this.#from.all(), signal, "reading buckets");
    if (server !== this.#server) return [];
    const wanted = new Set(moves.map(({ bucket }) => bucket));
    const buckets = rows.flatMap(({ bucket, epoch }) => (wanted.has(bucket) ? [{ bucket, epoch: epoch + 1 }] : []));
    const move = { from: this.#name, token, server: this.#servers.get(target) };
    return await waitOrAbort(target.expect(buckets, move), signal, "announcing buckets");
  }

  /** Whether it has not been told yet what became of it. */
  #isToMove({ bucket }: PlannedMove): boolean {
    return this.#targets.has(bucket);
  }

  /** Opens those again of which the copying pass has left rows out. @returns the others */
  async #reopenRefused(moves: readonly PlannedMove[], token: ClaimToken): Promise<readonly PlannedMove[]> {
    const others = moves.filter((move) => this.#isToMove(move));
    await this.#reopen(
      moves.filter((move) => !others.includes(move)),
      token,
    );
    return others;
  }

  async #reopen(moves: readonly PlannedMove[], token: ClaimToken): Promise<void> {
    if (moves.length === 0) return;
    using limit = timeout(LAST_PASS_MS, "opening buckets again");
    await changeEach(moves, (part) =>
      waitOrAbort(this.#from.reopen(bucketsOf(part), token), limit.signal, "opening buckets again"),
    );
  }

  /** Reports the moves that rows hold up. @returns these */
  #hold(moves: readonly PlannedMove[], waiting: ReadonlyMap<number, Waiting>): readonly PlannedMove[] {
    return moves.filter((move) => {
      const its = waiting.get(move.bucket);
      if (its !== undefined) this.#leaveOut(move, "held", waitingText(its));
      return its !== undefined;
    });
  }

  #leaveOut(move: PlannedMove, outcome: MovedBucket["outcome"], reason?: string): void {
    this.#targets.delete(move.bucket);
    this.#report(move, outcome, reason);
  }

  /** Reads what waits, of all buckets that are still to be moved: the next pass copies what is finished by then. */
  async #unfinished(signal: AbortSignal): Promise<Unfinished> {
    const unfinished = await unfinishedOf(this.#from, this.#targets, this.#prefixes, signal);
    this.#copies.note(unfinished.received);
    return unfinished;
  }

  async #pass(signal: AbortSignal): Promise<number> {
    const found = await this.#copies.pass(this.#targets, signal);
    this.copied += found;
    return found;
  }

  /** Keeps the buckets closed for this mover while it lives. A renewal that fails is repeated: the lease decides nothing. */
  #renew(token: ClaimToken): Disposable & { end(): void } {
    const ending = linked(undefined);
    const run = async () => {
      for (;;) {
        await sleep(LEASE_MS / 4, ending.signal);
        await this.#from.renew({ token, leaseMs: LEASE_MS }).catch((error: unknown) => {
          this.#options.log.debug({ reason: errorText(error) }, "the lease of closed buckets was not extended");
        });
      }
    };
    run().catch(() => {});
    const end = () => ending.abort();
    return { end, [Symbol.dispose]: end };
  }
}

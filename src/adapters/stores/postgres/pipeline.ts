import type pg from "pg";

/** A connection taken for one statement. Exactly one of its methods is called, once. */
export interface Borrowed {
  readonly client: pg.PoolClient;
  done(): void;
  /** The statement has failed. @param broken true, or why, when the connection must not be used again */
  failed(broken: Error | boolean): void;
}

/** Most unanswered statements of one connection: while one runs, the next is there. */
const DEPTH = 2;

/**
 * Longest time in ms of a statement with which another is pipelined. Longer ones wait: for a commit, for which two
 * connections wait at once, for a lock or for a lost server.
 */
const SHORT_MS = 5;

/** Share of the latest statement in the mean of their times. */
const WEIGHT = 0.2;

/**
 * Sends a statement behind a running one on the same connection. The server continues without waiting for us to read
 * its answer and to write again, which took a third of the time between two small inserts. Each statement is a
 * transaction of its own (PostgreSQL documentation, "Pipelining"); only the end of the connection ends both. Where
 * statements take long they get connections of their own.
 */
export class Pipeline {
  readonly #connect: (name: string) => Promise<pg.PoolClient>;
  readonly #othersWait: () => boolean;
  #current: Shared | undefined;
  /** Names of statements that succeeded on a connection, and so are prepared there. */
  readonly #succeeded = new WeakMap<pg.PoolClient, Set<string>>();
  /** Mean time of statements in ms, without the wait behind another. */
  #meanMs = 0;

  /**
   * @param connect takes a connection from the pool for the statement of that name
   * @param othersWait whether another caller waits for a connection; a connection in constant use would never be
   *   returned
   */
  constructor(connect: (name: string) => Promise<pg.PoolClient>, othersWait: () => boolean) {
    this.#connect = connect;
    this.#othersWait = othersWait;
  }

  /** @param name of the statement to send at once @throws what `connect` throws */
  async borrow(name: string): Promise<Borrowed> {
    const current = this.#current;
    if (current !== undefined && this.#mayJoin(current, name)) return this.#join(current, name);
    const shared = new Shared(await this.#connect(name));
    this.#current = shared;
    return this.#join(shared, name);
  }

  #mayJoin(shared: Shared, name: string): boolean {
    if (this.#meanMs >= SHORT_MS || !shared.hasRoom() || this.#othersWait()) return false;
    return this.#namesOn(shared.client).has(name);
  }

  #namesOn(client: pg.PoolClient): Set<string> {
    let names = this.#succeeded.get(client);
    if (names === undefined) {
      names = new Set();
      this.#succeeded.set(client, names);
    }
    return names;
  }

  #join(shared: Shared, name: string): Borrowed {
    const { client } = shared;
    const leave = shared.join();
    return {
      client,
      done: () => {
        this.#namesOn(client).add(name);
        this.#meanMs += (leave(false) - this.#meanMs) * WEIGHT;
      },
      failed: leave,
    };
  }
}

/** A connection of the pool and its users; the last one returns it. */
class Shared {
  readonly client: pg.PoolClient;
  /** When each statement was sent, in ms of the process, oldest first. */
  readonly #sent: number[] = [];
  #endedAt = 0;
  #broken: Error | boolean = false;

  constructor(client: pg.PoolClient) {
    this.client = client;
  }

  hasRoom(): boolean {
    if (this.#broken || this.#sent.length === 0 || this.#sent.length >= DEPTH) return false;
    const [oldest = 0] = this.#sent;
    return performance.now() - Math.max(oldest, this.#endedAt) < SHORT_MS;
  }

  /**
   * @returns to call once at the end, with why the connection is unusable, if so; returns the statement's time in ms
   */
  join(): (broken: Error | boolean) => number {
    const sentAt = performance.now();
    this.#sent.push(sentAt);
    return (broken) => {
      const startedAt = Math.max(sentAt, this.#endedAt);
      this.#endedAt = performance.now();
      this.#sent.splice(this.#sent.indexOf(sentAt), 1);
      if (broken) this.#broken = broken;
      if (this.#sent.length === 0) this.client.release(this.#broken);
      return this.#endedAt - startedAt;
    };
  }
}

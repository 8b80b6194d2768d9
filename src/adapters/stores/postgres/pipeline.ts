import type pg from "pg";

/** A connection that was taken for one statement. Exactly one of its methods is called, once. */
export interface Borrowed {
  readonly client: pg.PoolClient;
  /** The statement has succeeded. */
  done(): void;
  /** The statement has failed. @param broken true, or why, when the connection must not be used again */
  failed(broken: Error | boolean): void;
}

/** Most statements of one connection that have no answer yet: while one runs, the next is there. More would only wait. */
const DEPTH = 2;

/**
 * Longest time of a statement in ms with which another is sent behind it. Longer ones wait for something: a disk or a standby at the commit, for
 * which two connections wait at once, or a lock, or a server that is gone.
 */
const SHORT_MS = 5;

/** Share of the latest statement in the mean of their times. */
const WEIGHT = 0.2;

/**
 * Sends a statement behind one that still runs, on the same connection. The server goes from one to the next without waiting for us to
 * read its answer and to write again: between two small inserts that took a third of the time. Each statement is a
 * transaction of its own as before (PostgreSQL documentation, "Pipelining"), and what happens to one is nothing to the other, but that
 * the end of the connection ends both. Where statements take long they get connections of their own instead.
 */
export class Pipeline {
  readonly #connect: (name: string) => Promise<pg.PoolClient>;
  readonly #othersWait: () => boolean;
  #current: Shared | undefined;
  /** The names of statements that have succeeded on a connection. Behind a first one that fails, the next would miss its preparation. */
  readonly #succeeded = new WeakMap<pg.PoolClient, Set<string>>();
  /** How long statements have taken of late, in ms, without the time behind another. */
  #meanMs = 0;

  /**
   * @param connect takes a connection from the pool for the statement of that name
   * @param othersWait whether somebody waits for a connection; one that is always followed by the next would never come back
   */
  constructor(connect: (name: string) => Promise<pg.PoolClient>, othersWait: () => boolean) {
    this.#connect = connect;
    this.#othersWait = othersWait;
  }

  /**
   * @param name of the statement that will be sent at once
   * @throws what `connect` throws
   */
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

/** A connection of the pool and those who use it; it goes back with the last of them. */
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
   * @returns to be called once, when the statement has ended, with why the connection must not be used again, if so. It returns how long the
   * server had the statement for itself, in ms.
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

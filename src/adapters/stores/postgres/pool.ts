import type pg from "pg";
import { StoreError } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { Reserve } from "../sql/reserve.ts";
import { isVictim, retried } from "../sql/reserve.ts";
import type { Row, StatementRunner, Values } from "../sql/rows.ts";
import { type PoolOptions, PostgresConnections } from "./connections.ts";
import { hasGivenUp, isPreparationLost, isReadOnly, toStoreError } from "./errors.ts";
import { execute, READ_COMMITTED, runIn, type Statement, valuesInOrder } from "./statement.ts";

/** Runs the statements of a store; errors are `StoreError`s that name the statement. */
export class PostgresPool implements StatementRunner<Statement> {
  readonly connections: PostgresConnections;
  readonly #log: Log;
  readonly #reserve: Reserve;
  #closed = false;
  /** Of this store alone: behind a statement of another one, which may wait for a lock, its own would wait too. */
  readonly #pipeline = new Pipeline(
    (name) => this.#connect(name),
    () => this.connections.isExhausted,
  );

  /** @param connections of its database, if it shares them with other stores; by default its own */
  constructor(options: PoolOptions, log: Log, connections = new PostgresConnections(options, log)) {
    this.connections = connections;
    this.#log = log;
    this.#reserve = connections.join();
  }

  get lostConnections(): number {
    return this.connections.lost;
  }

  async run(statement: Statement, values: Values = {}): Promise<readonly Row[]> {
    return (await this.#reserved(statement, values)).rows as Row[];
  }

  async runAll(statement: Statement, values: Values = {}): Promise<readonly (readonly Row[])[]> {
    return [await this.run(statement, values)];
  }

  /** Runs one statement. @returns the number of rows that it changed */
  async change(statement: Statement, values: Values = {}): Promise<number> {
    return (await this.#reserved(statement, values)).rowCount ?? 0;
  }

  async #reserved(statement: Statement, values: Values): Promise<pg.QueryResult> {
    return await this.#reserve.run(statement.name, () => this.#run(statement, values));
  }

  async #run(statement: Statement, values: Values): Promise<pg.QueryResult> {
    const { connections } = this;
    const ordered = valuesInOrder(statement, values);
    let isExpectedToPass: (tries: number) => boolean = () => false;
    const attempt = async () => {
      const borrowed = await this.#borrow(statement);
      const isPrepared = connections.prepares;
      try {
        const result = await execute(borrowed.client, statement, ordered, isPrepared);
        borrowed.done();
        return result;
      } catch (error) {
        const failure = toStoreError(statement.name, error);
        const isLost = isPreparationLost(error);
        if (failure.code === "unavailable") connections.countLoss();
        if (isReadOnly(error)) connections.leaveReadOnly(borrowed.client);
        borrowed.failed(isLost || (failure.code === "unavailable" ? failure : false));
        if (isLost) connections.stopPreparing(failure);
        isExpectedToPass = (tries) => {
          // Nothing was executed; of a read-only server the next connection may reach the primary.
          if (isLost || isReadOnly(error)) return isLost ? isPrepared : tries === 1;
          // A statement by index that gave up has waited its longest.
          return isVictim(failure) && !(statement.byIndex === true && hasGivenUp(error));
        };
        throw failure;
      }
    };
    return await retried(this.#log, attempt, (_, tries) => isExpectedToPass(tries) && !this.#closed);
  }

  async #borrow(statement: Statement): Promise<Borrowed> {
    if (statement.isPipelined === true) return await this.#pipeline.borrow(statement.name);
    const ended = statement.takesTurns === true ? await this.connections.turns.take() : undefined;
    const client = await this.#connect(statement.name).catch((error: unknown) => {
      ended?.();
      throw error;
    });
    const release = (broken: Error | boolean) => {
      client.release(broken);
      ended?.();
    };
    return { client, done: () => release(false), failed: release };
  }

  /** Runs `work` in one transaction on one connection; rolls back when it throws. */
  async transaction<T>(name: string, work: (client: pg.ClientBase) => Promise<T>): Promise<T> {
    return await this.#reserve.run(name, () => this.#transaction(name, work));
  }

  async #transaction<T>(name: string, work: (client: pg.ClientBase) => Promise<T>): Promise<T> {
    const client = await this.#connect(name);
    try {
      await client.query(READ_COMMITTED);
      const result = await work(client);
      await client.query("COMMIT");
      client.release();
      return result;
    } catch (error) {
      if (isReadOnly(error)) {
        this.connections.leaveReadOnly(client);
        client.release(true);
        throw toStoreError(name, error);
      }
      const rollback = { text: "ROLLBACK", query_timeout: ROLLBACK_TIMEOUT_MS } as pg.QueryConfig;
      const rolledBack = await client.query(rollback).then(
        () => true,
        () => false,
      );
      client.release(!rolledBack);
      throw error instanceof Error && error.name === "ConfigError" ? error : toStoreError(name, error);
    }
  }

  /** As {@link transaction}, rolled back at its end; includes whatever the owner checks at the commit. */
  async trial<T>(name: string, work: (client: pg.ClientBase) => Promise<T>): Promise<T> {
    const rolledBack = new StoreError("other", `${name}: rolled back`);
    let result: Promise<T> | undefined;
    try {
      return await this.transaction(name, async (client) => {
        await client.query(`SET LOCAL lock_timeout = ${TRIAL_LOCK_MS}`);
        result = work(client);
        await result;
        await client.query("SET CONSTRAINTS ALL IMMEDIATE");
        throw rolledBack;
      });
    } catch (error) {
      if (error !== rolledBack || result === undefined) throw error;
      return await result;
    }
  }

  async runAndRollBack<T>(work: (run: StatementRunner<Statement>["run"]) => Promise<T>): Promise<T> {
    return await this.trial("a change to be rolled back", (client) =>
      work(async (statement, values = {}) => {
        try {
          return (await runIn(client, statement, values)).rows as Row[];
        } catch (error) {
          throw toStoreError(statement.name, error);
        }
      }),
    );
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.connections.leave(this.#reserve);
  }

  async #connect(name: string): Promise<pg.PoolClient> {
    if (this.#closed) throw new StoreError("unavailable", `${name}: the connection pool is closed`);
    return await this.connections.connect(name);
  }
}

const ROLLBACK_TIMEOUT_MS = 3000;
const TRIAL_LOCK_MS = 2000;

/** A connection taken for one statement. Exactly one of its methods is called, once. */
interface Borrowed {
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
class Pipeline {
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

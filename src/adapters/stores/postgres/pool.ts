import type pg from "pg";
import { StoreError } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";
import { isVictim, type Reserve, type Reserved, retried } from "../sql/reserve.ts";
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
  /** @param connections of its database, if it shares them with other stores; by default its own */
  constructor(options: PoolOptions, log: Log, connections = new PostgresConnections(options, log)) {
    this.connections = connections;
    this.#log = log;
    this.#reserve = connections.join();
  }

  get lostConnections(): number {
    return this.connections.losses;
  }

  async run(statement: Statement, values: Values = {}): Promise<readonly Row[]> {
    return (await this.#reserved(statement, values)).rows as Row[];
  }

  async runAll(statement: Statement, values: Values = {}): Promise<readonly (readonly Row[])[]> {
    return [await this.run(statement, values)];
  }

  /** @returns the number of changed rows */
  async change(statement: Statement, values: Values = {}): Promise<number> {
    return (await this.#reserved(statement, values)).rowCount ?? 0;
  }

  async #reserved(statement: Statement, values: Values): Promise<pg.QueryResult> {
    return await this.#reserve.run(statement, () => this.#run(statement, values));
  }

  async #run(statement: Statement, values: Values): Promise<pg.QueryResult> {
    const { connections } = this;
    const ordered = valuesInOrder(statement, values);
    let isExpectedToPass: (tries: number) => boolean = () => false;
    const attempt = async () => {
      const ended = statement.takesTurns === true ? await connections.turns.take() : undefined;
      const client = await this.#connect(statement.name).catch((error: unknown) => {
        ended?.();
        throw error;
      });
      const isPrepared = connections.prepares;
      try {
        const result = await execute(client, statement, ordered, isPrepared);
        client.release();
        return result;
      } catch (error) {
        const failure = toStoreError(statement.name, error);
        const isLost = isPreparationLost(error);
        if (failure.code === "unavailable") connections.countLoss();
        if (isReadOnly(error)) connections.leaveReadOnly(client);
        client.release(isLost || (failure.code === "unavailable" ? failure : false));
        if (isLost) connections.stopPreparing(failure);
        isExpectedToPass = (tries) => {
          // Nothing was executed; of a read-only server the next connection may reach the primary.
          if (isLost || isReadOnly(error)) return isLost ? isPrepared : tries === 1;
          // A statement by index that gave up has waited its longest.
          return isVictim(failure) && !(statement.byIndex === true && hasGivenUp(error));
        };
        throw failure;
      } finally {
        ended?.();
      }
    };
    return await retried(this.#log, attempt, (_, tries) => isExpectedToPass(tries) && !this.#closed);
  }

  /** Runs `work` in one transaction on one connection; rolls back when it throws. */
  async transaction<T>(of: Reserved, work: (client: pg.ClientBase) => Promise<T>): Promise<T> {
    return await this.#reserve.run(of, () => this.#transaction(of.name, work));
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
  async trial<T>(of: Reserved, work: (client: pg.ClientBase) => Promise<T>): Promise<T> {
    const rolledBack = new StoreError("other", `${of.name}: rolled back`);
    let result: Promise<T> | undefined;
    try {
      return await this.transaction(of, async (client) => {
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
    return await this.trial({ name: "a change to be rolled back" }, (client) =>
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

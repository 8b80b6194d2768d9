import type { ClaimToken } from "../../../model/rows.ts";
import type {
  DestinationReport,
  DestinationStore,
  NewPause,
  Opening,
  RateRequest,
  SharedDestination,
} from "../../../ports/destinationStore.ts";
import {
  openingValues,
  pauseValues,
  rateValues,
  reportValues,
  sharedDestination,
  wholeMs,
} from "../sql/destinations.ts";
import type { DestinationStatements } from "./destinationsSql.ts";
import type { PostgresPool } from "./pool.ts";
import type { Statement } from "./statement.ts";

/** What replicas share about destinations, on PostgreSQL: one short statement an operation. */
export class PostgresDestinations implements DestinationStore {
  /** Set by the check of the tables. */
  isAvailable = false;
  readonly #pool: PostgresPool;
  readonly #sql: DestinationStatements;

  constructor(pool: PostgresPool, statements: DestinationStatements) {
    this.#pool = pool;
    this.#sql = statements;
  }

  async states(): Promise<readonly SharedDestination[]> {
    return (await this.#pool.run(this.#sql.states)).map(sharedDestination);
  }

  async pause(name: string, pause: NewPause): Promise<void> {
    const { by, reason, forMs } = pauseValues(pause);
    await this.#pool.run(this.#sql.pause, [name, by, reason, forMs]);
  }

  async resume(name: string): Promise<boolean> {
    return await this.#changes(this.#sql.resume, [name]);
  }

  async takeFromRate(name: string, rate: RateRequest): Promise<number> {
    const { tokens, costUs, savedUs, mostAheadUs } = rateValues(rate);
    const [row] = await this.#pool.run(this.#sql.takeFromRate, [name, tokens, costUs, savedUs, mostAheadUs]);
    return Number(row?.wait_ms ?? 0);
  }

  async open(name: string, opening: Opening): Promise<boolean> {
    const { probe, reason, firstMs, mostMs, atLeastMs, stableAfterMs } = openingValues(opening);
    return await this.#changes(this.#sql.open, [name, probe, reason, firstMs, mostMs, atLeastMs, stableAfterMs]);
  }

  async takeProbe(name: string, probe: ClaimToken, leaseMs: number): Promise<boolean> {
    return await this.#changes(this.#sql.takeProbe, [name, probe, wholeMs(leaseMs)]);
  }

  async renewProbe(name: string, probe: ClaimToken, leaseMs: number): Promise<boolean> {
    return await this.#changes(this.#sql.renewProbe, [name, probe, wholeMs(leaseMs)]);
  }

  async close(name: string, probe: ClaimToken): Promise<boolean> {
    return await this.#changes(this.#sql.close, [name, probe]);
  }

  async returnProbe(name: string, probe: ClaimToken): Promise<void> {
    await this.#pool.run(this.#sql.returnProbe, [name, probe]);
  }

  async report(reports: readonly DestinationReport[]): Promise<void> {
    if (reports.length === 0) return;
    const values = reportValues(reports);
    await this.#pool.run(this.#sql.report, [
      values.map(({ name }) => name),
      values.map(({ succeededAgoMs }) => succeededAgoMs),
      values.map(({ failedAgoMs }) => failedAgoMs),
      values.map(({ error }) => error),
      values.map(({ isSlow }) => isSlow),
    ]);
  }

  /** @returns whether the statement found its row as it expects it */
  async #changes(statement: Statement, values: readonly unknown[]): Promise<boolean> {
    return (await this.#pool.run(statement, values)).length > 0;
  }
}

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
import type { SqlServerPool } from "./pool.ts";
import type { Statement, Values } from "./statement.ts";

/** What replicas share about destinations, on SQL Server: one short batch an operation. */
export class SqlServerDestinations implements DestinationStore {
  /** Set by the check of the tables. */
  isAvailable = false;
  readonly #pool: SqlServerPool;
  readonly #sql: DestinationStatements;

  constructor(pool: SqlServerPool, statements: DestinationStatements) {
    this.#pool = pool;
    this.#sql = statements;
  }

  async states(): Promise<readonly SharedDestination[]> {
    return (await this.#pool.run(this.#sql.states)).map(sharedDestination);
  }

  async pause(name: string, pause: NewPause): Promise<void> {
    await this.#pool.run(this.#sql.pause, { name, ...pauseValues(pause) });
  }

  async resume(name: string): Promise<boolean> {
    return await this.#changes(this.#sql.resume, { name });
  }

  async takeFromRate(name: string, rate: RateRequest): Promise<number> {
    const [row] = await this.#pool.run(this.#sql.takeFromRate, { name, ...rateValues(rate) });
    return Number(row?.wait_ms ?? 0);
  }

  async open(name: string, opening: Opening): Promise<boolean> {
    return await this.#changes(this.#sql.open, { name, ...openingValues(opening) });
  }

  async takeProbe(name: string, probe: ClaimToken, leaseMs: number): Promise<boolean> {
    return await this.#changes(this.#sql.takeProbe, { name, probe, leaseMs: wholeMs(leaseMs) });
  }

  async renewProbe(name: string, probe: ClaimToken, leaseMs: number): Promise<boolean> {
    return await this.#changes(this.#sql.renewProbe, { name, probe, leaseMs: wholeMs(leaseMs) });
  }

  async close(name: string, probe: ClaimToken): Promise<boolean> {
    return await this.#changes(this.#sql.close, { name, probe });
  }

  async returnProbe(name: string, probe: ClaimToken): Promise<void> {
    await this.#pool.run(this.#sql.returnProbe, { name, probe });
  }

  async report(reports: readonly DestinationReport[]): Promise<void> {
    if (reports.length === 0) return;
    await this.#pool.run(this.#sql.report, { rows: JSON.stringify(reportValues(reports)) });
  }

  /** @returns whether the batch found its row as it expects it */
  async #changes(statement: Statement, values: Values): Promise<boolean> {
    const [row] = await this.#pool.run(statement, values);
    return Number(row?.changed ?? 0) > 0;
  }
}

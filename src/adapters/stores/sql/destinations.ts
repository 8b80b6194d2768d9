import { randomUUID } from "node:crypto";
import { isRefused, StoreError } from "../../../model/errors.ts";
import type {
  BreakerState,
  DestinationReport,
  DestinationStore,
  NewPause,
  Opening,
  RateRequest,
  SharedDestination,
} from "../../../ports/destinationStore.ts";
import {
  countOf,
  dateOf,
  LONGEST_NAME,
  type Named,
  numberOf,
  type Row,
  type StatementRunner,
  storable,
  type Values,
} from "./rows.ts";

/**
 * Statements that change a row return `changed`, the number of rows; `open` returns `open_ms`, how long the breaker is
 * open, and `takeFromRate` `wait_ms`, or no row or NULL.
 */
export interface DestinationStatements<S>
  extends Named<S, "states" | "pause" | "resume" | "takeFromRate" | "report">,
    Named<S, "open" | "takeProbe" | "renewProbe" | "close" | "returnProbe"> {
  /** Makes the rows of `names` that are not there; undefined if the statements that need a row make it. */
  readonly makeRows: S | undefined;
  readonly dialect: { reportValues(reports: readonly ReportValues[]): Values };
}

export function destinationStore<S>(
  runner: StatementRunner<S>,
  sql: DestinationStatements<S>,
): DestinationStore & { check(): Promise<StoreError | undefined> } {
  let isAvailable = false;
  const hasChanged = (answer: readonly Row[]) => countOf(answer, "changed") > 0;
  const isAnswer = (answer: readonly Row[]) => answer.length > 0;
  const changes = async (statement: S, values: Values): Promise<boolean> =>
    hasChanged(await runner.run(statement, values));
  /** Runs a statement, and again after making missing rows. @param hasAll whether an answer is of all rows */
  const withRows = async (
    names: readonly string[],
    statement: S,
    values: Values,
    hasAll: (answer: readonly Row[]) => boolean,
  ): Promise<readonly Row[]> => {
    const answer = await runner.run(statement, values);
    if (sql.makeRows === undefined || hasAll(answer)) return answer;
    await runner.run(sql.makeRows, { names });
    return await runner.run(statement, values);
  };
  return {
    get isAvailable() {
      return isAvailable;
    },

    /**
     * Tries a pause, which is rolled back.
     *
     * @returns why this process cannot use the table
     * @throws StoreError if that stays unknown
     */
    async check() {
      const name = `svc check ${randomUUID()}`;
      const fault = await runner
        .runAndRollBack(async (run) => {
          await run(sql.states);
          if (sql.makeRows !== undefined) await run(sql.makeRows, { names: [name] });
          await run(sql.pause, { name, ...pauseValues({ by: name, reason: name, forMs: undefined }) });
        })
        .then(
          () => undefined,
          (error: unknown) => {
            if (isRefused(error) || (error instanceof StoreError && error.code === "schema")) return error;
            throw error;
          },
        );
      isAvailable = fault === undefined;
      return fault;
    },

    async states() {
      return (await runner.run(sql.states)).map(sharedDestination);
    },

    async pause(name, pause) {
      await withRows([name], sql.pause, { name, ...pauseValues(pause) }, hasChanged);
    },

    async resume(name) {
      return hasChanged(await runner.run(sql.resume, { name }));
    },

    async takeFromRate(name, rate) {
      const [row] = await withRows([name], sql.takeFromRate, { name, ...rateValues(rate) }, isAnswer);
      return Number(row?.wait_ms ?? 0);
    },

    async open(name, opening) {
      const values = { name, ...openingValues(opening) };
      const [row] = await withRows([name], sql.open, values, opening.probe === null ? isAnswer : () => true);
      return row?.open_ms == null ? undefined : Math.round(Number(row.open_ms));
    },

    async takeProbe(name, probe, leaseMs) {
      return await changes(sql.takeProbe, { name, probe, leaseMs: wholeMs(leaseMs) });
    },

    async renewProbe(name, probe, leaseMs) {
      return await changes(sql.renewProbe, { name, probe, leaseMs: wholeMs(leaseMs) });
    },

    async close(name, probe) {
      return await changes(sql.close, { name, probe });
    },

    async returnProbe(name, probe, waitMs) {
      return await changes(sql.returnProbe, { name, probe, waitMs: wholeMs(waitMs) });
    },

    async report(reports) {
      if (reports.length === 0) return;
      const values = valuesOf(reports);
      const names = values.map(({ name }) => name);
      const hasAll = (answer: readonly Row[]) => countOf(answer, "changed") === names.length;
      await withRows(names, sql.report, sql.dialect.reportValues(values), hasAll);
    },
  };
}

/** Ten years: every database can add it to now. Longer times count as this. */
const LONGEST_MS = 10 * 365 * 86_400_000;
/** A theoretical arrival time further ahead than this many takes shows that the clock was set back. */
const MOST_TAKES_AHEAD = 100;
const LEAST_AHEAD_US = 10_000_000;

/** How long a destination counts as slow after a replica has reported it. */
export const SLOW_FOR_MS = 10_000;
/** Openings after which an opening lasts no longer than the last: 2^20 seconds are twelve days. */
export const MOST_DOUBLINGS = 20;

function wholeMs(ms: number): number {
  return Math.round(Math.min(Math.max(ms, 0), LONGEST_MS));
}

function pauseValues({ by, reason, forMs }: NewPause) {
  return {
    by: storable(by, LONGEST_NAME),
    reason: storable(reason),
    forMs: forMs === undefined ? null : wholeMs(forMs),
  };
}

/** Times of a take in µs: a rate of thousands a second takes less than a millisecond for each. */
function rateValues({ tokens, perSecond, capacity }: RateRequest) {
  const microseconds = (count: number) => Math.round(Math.min((count / perSecond) * 1_000_000, LONGEST_MS * 1000));
  const costUs = microseconds(tokens);
  return {
    tokens: Math.round(tokens),
    costUs,
    savedUs: microseconds(capacity),
    mostAheadUs: Math.max(MOST_TAKES_AHEAD * costUs, LEAST_AHEAD_US),
  };
}

function openingValues(opening: Opening) {
  return {
    probe: opening.probe,
    firstMs: wholeMs(opening.openMs * opening.factor),
    mostMs: wholeMs(opening.maxOpenMs * opening.factor),
    atLeastMs: wholeMs(opening.atLeastMs),
    stableAfterMs: wholeMs(opening.stableAfterMs),
    reason: storable(opening.reason),
  };
}

export interface ReportValues {
  readonly name: string;
  readonly succeededAgoMs: number | null;
  readonly failedAgoMs: number | null;
  readonly error: string | null;
  readonly isSlow: boolean;
}

/** One for each name, in one order for all replicas, so that no two of them deadlock. */
function valuesOf(reports: readonly DestinationReport[]): readonly ReportValues[] {
  const byName = new Map<string, DestinationReport>();
  for (const report of reports) {
    const before = byName.get(report.name);
    byName.set(report.name, before === undefined ? report : merged(before, report));
  }
  const sorted = [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  return sorted.map(({ name, succeededAgoMs, failure, isSlow }) => ({
    name,
    succeededAgoMs: succeededAgoMs === undefined ? null : wholeMs(succeededAgoMs),
    failedAgoMs: failure === undefined ? null : wholeMs(failure.agoMs),
    error: failure === undefined ? null : storable(failure.reason),
    isSlow,
  }));
}

function merged(one: DestinationReport, other: DestinationReport): DestinationReport {
  const ages = [one.succeededAgoMs, other.succeededAgoMs].filter((age) => age !== undefined);
  const isOtherLater = (other.failure?.agoMs ?? Number.POSITIVE_INFINITY) < (one.failure?.agoMs ?? 0);
  return {
    name: one.name,
    succeededAgoMs: ages.length === 0 ? undefined : Math.min(...ages),
    failure: one.failure === undefined || isOtherLater ? (other.failure ?? one.failure) : one.failure,
    isSlow: one.isSlow || other.isSlow,
  };
}

function sharedDestination(row: Row): SharedDestination {
  const state = row.breaker_state as BreakerState;
  const isClosed = state === "closed";
  const pausedAt = dateOf(row.paused_at);
  return {
    name: row.name as string,
    pause:
      pausedAt === null
        ? null
        : {
            by: (row.paused_by as string | null) ?? "",
            reason: (row.pause_reason as string | null) ?? "",
            at: pausedAt,
            until: dateOf(row.paused_until),
          },
    breaker: {
      state,
      openings: isClosed ? 0 : numberOf(row.openings, 0),
      remainingMs: isClosed ? 0 : Math.max(0, numberOf(row.remaining_ms, 0)),
      reason: isClosed ? null : (row.breaker_reason as string | null),
    },
    lastSuccessAt: dateOf(row.last_success_at),
    lastFailureAt: dateOf(row.last_failure_at),
    lastError: row.last_error as string | null,
    slowAt: dateOf(row.slow_at),
    isSlow: Boolean(Number(row.is_slow)),
    takenPerSecond: numberOf(row.taken_per_second, 0),
  };
}

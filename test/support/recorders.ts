import type { Audit } from "../../src/core/operations/audit.ts";
import type { Journal } from "../../src/core/receipt/journal.ts";
import type { Metrics } from "../../src/ports/metrics.ts";
import type { NewAuditEntry } from "../../src/ports/operationsStore.ts";
import type { Log } from "../../src/ports/runtime.ts";
import type { Clock } from "../../src/time/clock.ts";

/** Metrics that write down each call as `name(arguments)`. */
export function recordingMetrics(): { readonly metrics: Metrics; readonly calls: string[] } {
  const calls: string[] = [];
  const metrics = new Proxy({} as Metrics, {
    get:
      (_, name) =>
      (...values: readonly unknown[]) => {
        calls.push(`${String(name)}(${values.join(", ")})`);
      },
  });
  return { metrics, calls };
}

export interface LogLine {
  readonly level: "debug" | "info" | "warn" | "error";
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** An audit log that keeps its entries. */
export function recordingAudit(): { readonly audit: Audit; readonly entries: NewAuditEntry[] } {
  const entries: NewAuditEntry[] = [];
  return { audit: { add: async (entry) => void entries.push(entry) }, entries };
}

/** A log that keeps its lines. */
export function recordingLog(): { readonly log: Log; readonly lines: LogLine[] } {
  const lines: LogLine[] = [];
  const at = (context: object): Log => {
    const writer = (level: LogLine["level"]) => (fields: object, message: string) => {
      lines.push({ level, message, fields: { ...context, ...fields } });
    };
    return {
      debug: writer("debug"),
      info: writer("info"),
      warn: writer("warn"),
      error: writer("error"),
      child: (fields) => at({ ...context, ...fields }),
    };
  };
  return { log: at({}), lines };
}

/** A log that keeps nothing. */
export const silentLog: Log = { debug() {}, info() {}, warn() {}, error() {}, child: () => silentLog };

/** Metrics that keep nothing. */
export const silentMetrics: Metrics = new Proxy({} as Metrics, { get: () => () => {} });

/** A clock that stands still until a test moves it; wall clock and monotonic clock run together. */
export class ManualClock implements Clock {
  ms: number;

  constructor(ms = Date.UTC(2024, 0, 1)) {
    this.ms = ms;
  }

  now(): number {
    return this.ms;
  }

  monotonic(): number {
    return this.ms;
  }

  advance(ms: number): void {
    this.ms += ms;
  }
}

/** A journal that keeps what is noted, read at once. */
export function recordingJournal(): { readonly journal: Journal; readonly noted: object[] } {
  const noted: object[] = [];
  return {
    noted,
    journal: {
      filtered: (source, read) => noted.push({ filtered: source, ...read() }),
      duplicate: ({ source, idempotencyKey, correlationId }) =>
        noted.push({ duplicate: source, idempotencyKey, correlationId }),
    },
  };
}

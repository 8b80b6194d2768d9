import { errorText } from "../../model/errors.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";

export interface FaultLogOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Message of a failure. */
  readonly failed: string;
  /** Message when it works again. */
  readonly again: string;
}

/** A fault that stays is told again after this time. */
const REPEAT_MS = 5 * 60_000;

/**
 * Tells the log of something that fails again and again: one `warn` for a reason until it changes or five minutes are over, `debug` in
 * between, and one `info` when it works again.
 */
export class FaultLog {
  readonly #options: FaultLogOptions;
  #row: { readonly since: number; reason: string; loggedAt: number } | undefined;

  constructor(options: FaultLogOptions) {
    this.#options = options;
  }

  /** @param fields of the line, beside the reason */
  failed(error: unknown, fields: object): void {
    const { clock, log, failed } = this.#options;
    const reason = errorText(error);
    const now = clock.monotonic();
    if (reason === this.#row?.reason && now - this.#row.loggedAt < REPEAT_MS) {
      log.debug({ ...fields, reason }, failed);
      return;
    }
    this.#row = { since: this.#row?.since ?? now, reason, loggedAt: now };
    log.warn({ ...fields, reason }, failed);
  }

  /** @returns whether anything had failed; the log then has how long it did not work */
  recovered(): boolean {
    const row = this.#row;
    if (row === undefined) return false;
    this.#row = undefined;
    const { clock, log, again } = this.#options;
    log.info({ awayMs: Math.round(clock.monotonic() - row.since) }, again);
    return true;
  }
}

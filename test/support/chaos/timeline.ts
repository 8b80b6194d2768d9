import type { JournalEntry } from "./journal.ts";

/**
 * Whom a fault touches: one process by its name (`poller-1.3`), the processes that use one way to the database one after another
 * (`poller-1`), everything that works with the database, or everything that goes to the broker.
 */
export type Touched = { readonly process: string } | { readonly way: string } | "database" | "broker" | "nothing";

/** A fault as it happened. Times are ms since the epoch. */
export interface Fault {
  readonly what: string;
  readonly touches: Touched;
  /** A suspended process sends what was on its way out when it resumes, whatever has happened meanwhile. */
  readonly suspends: boolean;
  readonly from: number;
  /** Infinity while it lasts, and for a process that was killed. */
  until: number;
}

/**
 * How long after a fault a process may still feel it: the longest pause between two tries to settle (2 s), a reconnection, and the rest for a machine
 * that does other things beside.
 */
const RECOVERY_MS = 4000;

/** The database was put back to what it had been. Times are ms since the epoch. */
export interface Restore {
  /** What was committed and acknowledged between these may be gone. */
  readonly from: number;
  readonly until: number;
  /** The copy to which it was put back. */
  readonly copiedAt: number;
  /** The journal of what is gone. */
  readonly lost: readonly JournalEntry[];
}

/** A step of the database's clock, somewhen between two times in ms since the epoch. */
export interface ClockStep {
  readonly from: number;
  readonly until: number;
  readonly isBack: boolean;
}

/** The faults of a run, in the order in which they began. */
export class Timeline {
  readonly faults: Fault[] = [];
  readonly restores: Restore[] = [];
  readonly clockSteps: ClockStep[] = [];
  #startedAt = Date.now();
  readonly #onEntry: (line: string) => void;
  readonly #entries: { readonly at: number; readonly text: string }[] = [];

  /** @param onEntry called with each line at once */
  constructor(onEntry: (line: string) => void) {
    this.#onEntry = onEntry;
  }

  /** From here on the lines count their seconds. */
  start(): void {
    this.#startedAt = Date.now();
  }

  /** A fault begins. @returns ends it */
  begin(what: string, touches: Touched, suspends = false): () => void {
    const fault: Fault = { what, touches, suspends, from: Date.now(), until: Number.POSITIVE_INFINITY };
    this.faults.push(fault);
    this.note(what);
    return () => {
      fault.until = Date.now();
    };
  }

  /** Something that is worth a line, and is no fault. */
  note(text: string): void {
    const at = Date.now();
    this.#entries.push({ at, text });
    this.#onEntry(this.#line(at, text));
  }

  /** Whether a fault that touches a process, or what it works with, lay in a time span or could be felt in it. */
  disturbed(process: string, from: number, until: number, usesBroker: boolean): boolean {
    return this.faults.some(
      (fault) =>
        fault.from <= until && fault.until + RECOVERY_MS >= from && isTouched(fault.touches, process, usesBroker),
    );
  }

  /** The last suspension of a process that lay in a time span. */
  suspension(process: string, from: number, until: number): Fault | undefined {
    return this.faults.findLast(
      (fault) =>
        fault.suspends && fault.from <= until && fault.until >= from && isTouched(fault.touches, process, false),
    );
  }

  /** Whether what was acknowledged at a time may be gone since the database was put back. */
  mayBeLost(at: number | undefined): boolean {
    return at !== undefined && this.restores.some(({ from, until }) => from <= at && at <= until);
  }

  /** Whether the database has forgotten what was acknowledged at a time before this one: it was put back to an older copy in between. */
  wasForgotten(acknowledgedAt: number | undefined, before: number): boolean {
    return (
      acknowledgedAt !== undefined &&
      this.restores.some(
        ({ copiedAt, until }) => copiedAt <= acknowledgedAt && acknowledgedAt <= until && until <= before,
      )
    );
  }

  /** Whether the database's clock was stepped in a time span: the leases of that time end earlier, or later, than their holders know. */
  clockWasStepped(from: number, until: number): boolean {
    return this.#steps(from, until).length > 0;
  }

  /** The times from which on the database's clock was set back, in a time span. */
  clockSetBack(from: number, until: number): readonly number[] {
    return this.#steps(from, until).flatMap((step) => (step.isBack ? [step.from] : []));
  }

  #steps(from: number, until: number): readonly ClockStep[] {
    return this.clockSteps.filter((step) => from <= step.until && step.from <= until);
  }

  /** Everything noted in a time span, a line each. */
  lines(from = Number.NEGATIVE_INFINITY, until = Number.POSITIVE_INFINITY): readonly string[] {
    return this.#entries.filter(({ at }) => at >= from && at <= until).map(({ at, text }) => this.#line(at, text));
  }

  /** A time as it stands in the lines: seconds since the beginning. */
  seconds(at: number): string {
    return `${((at - this.#startedAt) / 1000).toFixed(3)} s`;
  }

  #line(at: number, text: string): string {
    return `${this.seconds(at).padStart(12)}  ${text}`;
  }
}

function isTouched(touches: Touched, process: string, usesBroker: boolean): boolean {
  if (touches === "database") return true;
  if (touches === "broker") return usesBroker;
  if (touches === "nothing") return false;
  return "process" in touches ? touches.process === process : process.startsWith(`${touches.way}.`);
}

import type { ClaimToken } from "../model/rows.ts";
import type { ReplayScope } from "./finishedRows.ts";

/**
 * Replays that operators started, in a table: any number of processes may call every method at once, and one at a time
 * executes a job, under a lease. The database's clock decides. Methods reject with `StoreError`; with the code `schema`
 * where the table is missing or closed to this user.
 */
export interface JobStore {
  /** Adds a running job, held under its token. */
  add(job: NewJob, lease: JobLease): Promise<void>;

  get(id: string): Promise<Job | undefined>;

  /** Newest first. */
  list(limit: number): Promise<readonly Job[]>;

  /** Takes a running job whose lease has ended. @returns false when another process was faster, or the job has ended */
  take(id: string, lease: JobLease): Promise<boolean>;

  /** Running jobs that no process executes, oldest first. */
  abandoned(limit: number): Promise<readonly string[]>;

  /**
   * Notes how far a job has come, also where it was cancelled meanwhile, and extends its lease. Safe to repeat.
   *
   * @returns false when the job was cancelled or another process has taken it: stop
   */
  advance(id: string, lease: JobLease, progress: JobProgress): Promise<boolean>;

  /**
   * Ends a job of this token, or releases it: `running` for whoever takes it next.
   *
   * @param error also what a job left that is done
   */
  end(id: string, token: ClaimToken, state: Exclude<JobState, "cancelled">, error: string | null): Promise<void>;

  /** A running or interrupted job never goes on. @returns false when it had ended, or does not exist */
  cancel(id: string): Promise<boolean>;

  /**
   * A failed or interrupted job runs again, for whoever takes it first; an interrupted one keeps its `lastError`.
   *
   * @returns false when it was in another state
   */
  resume(id: string): Promise<boolean>;
}

export interface NewJob {
  readonly id: string;
  readonly by: string;
  /** JSON. */
  readonly filter: string;
  readonly perSecond: number | null;
  /** How many rows match; null where that is not known. */
  readonly total: number | null;
  readonly scope: ReplayScope;
}

interface JobLease {
  readonly token: ClaimToken;
  readonly leaseMs: number;
}

interface JobProgress {
  /** Rows moved since the job began; fewer than noted change nothing. */
  readonly moved: number;
  /** Sequence after which the job goes on; null keeps the one before. */
  readonly position: string | null;
  /** What the job left as it is, in words: its `lastError` until it ends. Null keeps the one before. */
  readonly left?: string | null;
}

export const JOB_STATES = ["running", "done", "failed", "cancelled", "interrupted"] as const;
export type JobState = (typeof JOB_STATES)[number];

export interface Job extends NewJob {
  /** The cell whose table has it, of those whose rows it moves; undefined without cells. */
  readonly cell?: string | undefined;
  readonly state: JobState;
  readonly createdAt: Date | null;
  readonly updatedAt: Date | null;
  readonly moved: number;
  readonly position: string | null;
  readonly lastError: string | null;
}

import type { ReplayScope } from "./finishedRows.ts";

/**
 * Replays that operators started: a row each, in a table. The process that was asked runs a replay; its token in the row
 * makes it the only one that may write there. Methods reject with `StoreError`; with the code `schema` where the table is
 * missing or closed to this user.
 */
export interface JobStore {
  /** Adds a running replay with the token of its first run. */
  add(job: NewJob, token: string): Promise<void>;

  get(id: string): Promise<Job | undefined>;

  /** Newest first. */
  list(limit: number): Promise<readonly Job[]>;

  /**
   * Notes how far a run has come, also after a cancel, and the state of a replay that was running. Safe to repeat.
   *
   * @returns the state of the replay then; undefined if the token is not that of its latest run: stop
   */
  note(id: string, token: string, progress: JobProgress): Promise<JobState | undefined>;

  /** A running, interrupted or failed replay never resumes. @returns false when it had ended, or does not exist */
  cancel(id: string): Promise<boolean>;

  /**
   * Makes a running, interrupted or failed replay a running one under a new token, so that its former run stops. The error
   * of a failed one goes; rows left by others stay in `lastError`.
   *
   * @returns false when it was in another state, or does not exist
   */
  resume(id: string, token: string): Promise<boolean>;
}

interface NewJob {
  readonly id: string;
  readonly by: string;
  /** JSON. */
  readonly filter: string;
  readonly perSecond: number | null;
  /** How many rows match; null where that is not known. */
  readonly total: number | null;
  readonly scope: ReplayScope;
}

interface JobProgress {
  readonly state: Exclude<JobState, "cancelled">;
  /** Rows moved since the replay began; fewer than noted change nothing. */
  readonly moved: number;
  /** Sequence behind which the replay resumes; null keeps the one before. */
  readonly position: string | null;
  /** Why it failed, and which rows it left, in words. */
  readonly lastError: string | null;
}

export const JOB_STATES = ["running", "done", "failed", "cancelled", "interrupted"] as const;
export type JobState = (typeof JOB_STATES)[number];

export interface Job extends NewJob {
  readonly state: JobState;
  readonly createdAt: Date | null;
  /** Of the latest progress or change. */
  readonly updatedAt: Date | null;
  readonly moved: number;
  readonly position: string | null;
  readonly lastError: string | null;
}

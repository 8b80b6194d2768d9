import type { Log } from "../../../ports/runtime.ts";
import { CaptureFault } from "./faults.ts";
import type { CaptureInstance, Query } from "./instance.ts";
import { ADD_JOB, JOB, JOB_ACTIVITY, SCAN_WITHOUT_PAUSE, SHOW_JOBS, START_JOB } from "./statements.ts";

/** One line of the log. */
export interface Notice {
  readonly level: "info" | "warn";
  readonly message: string;
  readonly fields: Readonly<Record<string, string | number>>;
}

/** Microsoft Learn, "Change data capture (CDC) with Azure SQL Database": the frequency cannot be changed. */
const AZURE_SCAN_INTERVAL_SECONDS = 20;

/**
 * How often the log is scanned for changes, in words: no insert is seen before the next scan.
 *
 * @throws CaptureFault when the connection breaks; a right that is missing is only told
 */
export async function captureJobNotice(query: Query, { isAzureDatabase }: CaptureInstance): Promise<Notice> {
  if (isAzureDatabase) {
    return {
      level: "warn",
      message:
        "Azure SQL Database scans its log for changes at a fixed interval: inserts are seen later than by polling at the default outbox.pollIntervalMs, so capture is not worth it here",
      fields: { scanIntervalSeconds: AZURE_SCAN_INTERVAL_SECONDS },
    };
  }
  try {
    const [job] = await query(JOB, {});
    if (job === undefined) {
      return {
        level: "warn",
        message:
          "the database has no capture job: no insert is seen, unless the log reader of a transactional publication captures the changes",
        fields: { remedy: ADD_JOB },
      };
    }
    if (!(await isRunning(query))) {
      return {
        level: "warn",
        message:
          "the capture job is not running: no insert is seen, and the database's log is not truncated, until SQL Server Agent runs it again",
        fields: { remedy: START_JOB },
      };
    }
    return scanNotice(Boolean(job.continuous), Number(job.pollinginterval));
  } catch (error) {
    if (!isRefusal(error)) throw error;
    return {
      level: "info",
      message:
        "how often the capture job scans the log could not be read: inserts are seen no sooner than that, which is 5 s unless it was changed",
      fields: { reason: error.message, check: SHOW_JOBS, remedy: SCAN_WITHOUT_PAUSE },
    };
  }
}

/** Writes a notice. */
export function write(log: Log, { level, message, fields }: Notice): void {
  log[level](fields, message);
}

function scanNotice(isContinuous: boolean, intervalSeconds: number): Notice {
  if (!isContinuous) {
    return {
      level: "warn",
      message: "the capture job scans the log only when its schedule starts it: inserts are seen no sooner",
      fields: { remedy: SCAN_WITHOUT_PAUSE },
    };
  }
  if (intervalSeconds > 0) {
    return {
      level: "warn",
      message:
        "the capture job pauses between two scans of the log: inserts are seen up to that much later, which is slower than polling at the default outbox.pollIntervalMs",
      fields: { scanIntervalSeconds: intervalSeconds, remedy: SCAN_WITHOUT_PAUSE },
    };
  }
  return {
    level: "info",
    message: "the capture job scans the log without a pause",
    fields: { scanIntervalSeconds: 0 },
  };
}

/** True also when the user may not see it: the rights on `cdc_jobs` alone do not show it. */
async function isRunning(query: Query): Promise<boolean> {
  try {
    const [activity] = await query(JOB_ACTIVITY, {});
    return Number(activity?.running) > 0;
  } catch (error) {
    if (!isRefusal(error)) throw error;
    return true;
  }
}

/** The server answers, and refuses. */
function isRefusal(error: unknown): error is CaptureFault {
  return error instanceof CaptureFault && error.number !== undefined;
}

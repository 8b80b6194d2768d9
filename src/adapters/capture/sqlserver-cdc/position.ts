import type { LogPosition } from "../../../ports/capture.ts";
import type { Log } from "../../../ports/runtime.ts";
import { notReadable } from "./faults.ts";
import type { CaptureInstance, Query } from "./instance.ts";
import { NO_LSN, RANGE, type SourceTable } from "./statements.ts";

/** As `CONVERT(nvarchar(22), ..., 1)` writes a `binary(10)`; so the order of the texts is the order of the LSNs. */
const LSN = /^0x[0-9A-F]{20}$/;

/**
 * An LSN of the server.
 *
 * @param value of a column; null when the server has none, as before the first scan of the capture job
 */
export function lsnOf(value: unknown): LogPosition | null {
  return typeof value === "string" && LSN.test(value) ? value : null;
}

/**
 * Where to begin: at the saved position when all that came after it is still there, else at what the capture job has reached by now.
 *
 * @param from the saved position; null when there is none
 * @throws CaptureFault when the instance may not be read
 */
export async function beginning(
  query: Query,
  table: SourceTable,
  instance: CaptureInstance,
  from: LogPosition | null,
  log: Log,
): Promise<LogPosition> {
  const [range] = await query(RANGE, { instance: instance.name });
  const lowest = lsnOf(range?.lowest);
  if (lowest === NO_LSN) throw notReadable(table, instance.user, instance.role);
  const highest = lsnOf(range?.highest);
  const present = highest ?? NO_LSN;
  if (lowest === null || highest === null) {
    log.warn(
      { captureInstance: instance.name },
      "the capture job has not yet scanned the log for this table: no insert is seen before it does",
    );
  }
  if (from === null) return present;
  const problem = problemOf(from, lowest, present);
  if (problem === undefined) return from;
  log.warn(
    { captureInstance: instance.name, position: from, lowest: lowest ?? "none", highest: highest ?? "none" },
    problem,
  );
  return present;
}

/** Why a saved position is not used; undefined when it is. */
function problemOf(from: LogPosition, lowest: LogPosition | null, present: LogPosition): string | undefined {
  if (lsnOf(from) === null)
    return "the saved position is no LSN: capture begins at the present, the poller finds what came before";
  if (from > present) return RESTORED;
  if (lowest !== null && from < lowest) {
    return "the saved position is older than the first change that is still kept, by a cleanup or a new capture instance: capture begins at the present, the poller finds what came before";
  }
  return undefined;
}

export const RESTORED =
  "the position lies beyond the end of the captured changes, as after a restore or a failover: capture begins at the present, the poller finds what came before";

import { createStore, prepareStore } from "../../roles/database.ts";
import { retentions } from "../../roles/finishedRows.ts";
import type { Config } from "../config/types.ts";
import { StoppingError } from "../model/errors.ts";
import type { Log } from "../ports/runtime.ts";
import type { RunningLog } from "../runtime/log.ts";
import { createMetrics } from "../runtime/metrics.ts";
import { handleSignals } from "../runtime/shutdown.ts";
import { systemClock } from "../time/clock.ts";
import { withTimeout } from "../time/wait.ts";
import { VERSION } from "./process.ts";

/**
 * `svc retention --once`: one sweep of each table, without HTTP servers, for a scheduler. A signal ends it after the running batch, as
 * a clean stop: what is left is for the next run.
 *
 * @throws ConfigError when the tables do not fit, StoreError when no database answers, AggregateError with what each failed sweep met
 */
export async function retentionOnce(config: Config, { log, flush }: RunningLog): Promise<void> {
  const signals = handleSignals({
    log,
    flush,
    stop: () => withTimeout(config.outbox.shutdownTimeoutMs, "stopping retention", () => swept),
  });
  const swept = sweep(config, log, signals.stopping);
  try {
    await swept;
  } finally {
    // After a signal its handler ends the process.
    if (!signals.stopping.aborted) signals.dispose();
    flush();
  }
}

/** Sweeps one table after the other; the failure of one does not keep the other from its turn. */
async function sweep(config: Config, log: Log, stopping: AbortSignal): Promise<void> {
  const store = await createStore(config, systemClock, log);
  const failures: unknown[] = [];
  try {
    await prepareStore(store, config, new Set(["retention"]), log, stopping);
    // Nobody can ask this process for its metrics.
    const { metrics } = createMetrics({ version: VERSION, roles: ["retention"], processMetrics: false });
    for (const { table, retention } of retentions({ config, store, clock: systemClock, metrics, log }, stopping)) {
      if (stopping.aborted) break;
      await retention.runOnce().catch((error: unknown) => {
        log.error({ err: error, table }, "retention failed");
        failures.push(error);
      });
    }
  } catch (error) {
    if (!(error instanceof StoppingError)) throw error;
  } finally {
    await store.close();
  }
  if (failures.length > 0) throw new AggregateError(failures, "retention failed");
}

import { v7 as uuidv7 } from "uuid";
import type { Config } from "../src/config/types.ts";
import { InboxReplay } from "../src/core/finished/inboxReplay.ts";
import { MessageActions } from "../src/core/finished/messageActions.ts";
import { Parked } from "../src/core/finished/parked.ts";
import { Replay } from "../src/core/finished/replay.ts";
import { ReplayJobs } from "../src/core/finished/replayJobs.ts";
import { Retention } from "../src/core/finished/retention.ts";
import type { SourceOptions } from "../src/core/receipt/receive.ts";
import { StoppingError } from "../src/model/errors.ts";
import type { RetentionPolicy } from "../src/ports/finishedRows.ts";
import type { HealthComponent, Service } from "../src/ports/runtime.ts";
import { Loop, logFailures } from "../src/runtime/loop.ts";
import { systemClock } from "../src/time/clock.ts";
import { sharedController, sleep } from "../src/time/wait.ts";
import type { OperatorContext, RoleContext, RoleParts } from "./context.ts";
import { destinationOf } from "./destinations.ts";

/** Role `retention`: deletes old finished rows, each table at its own interval. */
export function retentionRole(context: RoleContext): RoleParts {
  const { clock, log } = context;
  const stopping = sharedController();
  const loops = retentions(context, stopping.signal).map(
    ({ table, retention, cleanupIntervalMs }) =>
      new Loop({
        name: `retention of the ${table}`,
        pass: () => retention.pass(),
        intervalMs: cleanupIntervalMs,
        staleAfterMs: cleanupIntervalMs + STALE_AFTER_MS,
        onError: logFailures(log, "retention failed", { table }),
        clock,
      }),
  );
  const service = (loop: Loop): Service => ({
    name: loop.name,
    start: () => loop.start(),
    async stop(cutoff) {
      stopping.abort(new StoppingError());
      await loop.stop(cutoff);
    },
  });
  const health: HealthComponent = {
    name: "retention-service",
    decidesReadiness: true,
    async check() {
      for (const loop of loops) await loop.check();
    },
  };
  return { workers: loops.map(service), health: [health] };
}

/** The retention of one table. */
interface TableRetention {
  readonly table: RetentionPolicy["table"];
  readonly retention: Retention;
  readonly cleanupIntervalMs: number;
}

/** The retention of each table whose policy is not `DISABLED`. */
export function retentions(
  { config, store, clock, metrics, log }: Pick<RoleContext, "config" | "store" | "clock" | "metrics" | "log">,
  stopping: AbortSignal,
): readonly TableRetention[] {
  return (["outbox", "inbox"] as const).flatMap((table) => {
    const policy = policyOf(config, table);
    if (policy === undefined) return [];
    const { batchSize, cleanupInterval } = config.retention[table];
    const history = table === "outbox" ? store.history : undefined;
    const options = { store: store.retention, history, policy, batchSize, stopping, wait: sleep, clock, metrics, log };
    return [{ table, retention: new Retention(options), cleanupIntervalMs: cleanupInterval }];
  });
}

function policyOf({ retention }: Config, table: RetentionPolicy["table"]): RetentionPolicy | undefined {
  const { policy, maxAge } = retention[table];
  const { maxCount } = retention.outbox;
  // The check of the configuration guarantees what a policy requires.
  if (policy === "AGE" && maxAge !== undefined) return { table, kind: "AGE", maxAgeMs: maxAge };
  if (policy === "COUNT" && maxCount !== undefined) return { table: "outbox", kind: "COUNT", maxCount };
  return undefined;
}

/** Above the longest statement (the plan of a very large `maxCount`) and the wait for a connection. */
const STALE_AFTER_MS = 600_000;

/**
 * What operators do with rows: replays, at once or as jobs that show their progress and can be resumed; the changes of parked rows and of single messages. The routes of the configuration decide where a row
 * goes. Rows that are due and keys that are free are announced to the pollers of other processes.
 *
 * @param wakePoller wakes the poller of this process
 * @param sources of the inbox rows that may be replayed: `everySource`
 */
export function createRowChanges(
  { config, store, redact, audit, log }: Pick<OperatorContext, "config" | "store" | "redact" | "audit" | "log">,
  wakePoller: () => void = () => {},
  sources: readonly SourceOptions[] = [],
) {
  const announce = (): void => {
    wakePoller();
    store.announceOutbox();
  };
  const replay = new Replay({
    store: store.replay,
    inbox: new InboxReplay({ messages: store.messages, store: store.replay, sources, redact }),
    destinationOf: destinationOf(config),
    onMoved: announce,
    redact,
    audit,
    log,
    wait: sleep,
  });
  const jobs = new ReplayJobs({
    store: store.jobs,
    replay,
    newId: uuidv7,
    now: () => systemClock.monotonic(),
    audit,
    redact,
    log,
  });
  const parked = new Parked({
    store: store.parked,
    replay: store.replay,
    cells: store.cells,
    onFreed: announce,
    redact,
    audit,
    log,
    now: () => systemClock.monotonic(),
    wait: sleep,
  });
  const messages = new MessageActions({ store, replay, onFreed: announce, audit, redact });
  return { replay, jobs, parked, messages };
}

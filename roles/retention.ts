import type { Config } from "../src/config/types.ts";
import { Retention } from "../src/core/finished/retention.ts";
import { StoppingError } from "../src/model/errors.ts";
import type { RetentionPolicy } from "../src/ports/finishedRows.ts";
import type { Service } from "../src/ports/runtime.ts";
import { Loop } from "../src/runtime/loop.ts";
import { sharedController, sleep } from "../src/time/wait.ts";
import type { RoleContext, RoleParts } from "./context.ts";

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
        onError: (error, failures, delayMs) => log.error({ err: error, table, failures, delayMs }, "retention failed"),
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
  return {
    workers: loops.map(service),
    health: [
      {
        name: "retention-service",
        decidesReadiness: true,
        async check() {
          for (const loop of loops) await loop.check();
        },
      },
    ],
  };
}

/** The retention of one table. */
export interface TableRetention {
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
    const options = { store: store.retention, policy, batchSize, stopping, wait: sleep, clock, metrics, log };
    return [{ table, retention: new Retention(options), cleanupIntervalMs: cleanupInterval }];
  });
}

function policyOf({ retention }: Config, table: RetentionPolicy["table"]): RetentionPolicy | undefined {
  const { policy, maxAge } = retention[table];
  const { maxCount } = retention.outbox;
  // The check of the configuration has made sure that a policy has what it requires.
  if (policy === "AGE" && maxAge !== undefined) return { table, kind: "AGE", maxAgeMs: maxAge };
  if (policy === "COUNT" && maxCount !== undefined) return { table: "outbox", kind: "COUNT", maxCount };
  return undefined;
}

/** Above the longest statement (the plan of a very large `maxCount`) and the wait for a connection. */
const STALE_AFTER_MS = 600_000;

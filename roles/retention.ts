import { StoppingError } from "../src/model/errors.ts";
import type { HealthComponent, Service } from "../src/ports/runtime.ts";
import { Loop, logFailures } from "../src/runtime/loop.ts";
import { retentions } from "../src/setup/retention.ts";
import { sharedController } from "../src/time/wait.ts";
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

/** Above the longest statement (the plan of a very large `maxCount`) and the wait for a connection. */
const STALE_AFTER_MS = 600_000;

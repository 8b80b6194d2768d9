import { DestinationControl } from "../src/core/destinationControl.ts";
import type { Replay } from "../src/core/replay.ts";
import type { ReplayRequest } from "../src/core/replayRequest.ts";
import { adminRoutes } from "../src/http/admin/routes.ts";
import { StoppingError } from "../src/model/errors.ts";
import type { Service } from "../src/ports/runtime.ts";
import { sharedController, waitOrAbort } from "../src/runtime/abort.ts";
import { EvaluatorPool } from "../src/runtime/evaluation/pool.ts";
import { closer, type RoleContext, type RoleParts } from "./context.ts";
import { createReplay } from "./replay.ts";
import { adminBodyBytes } from "./servedApi.ts";
import { EVALUATOR_SCRIPT } from "./transforms.ts";

/** Role `admin`: lets operators try transforms, deliver rows again, and pause destinations. */
export function adminRole({ config, store, clock, log, bodies, wakes }: RoleContext): RoleParts {
  // Apart from the workers of the configured transforms, so that what callers try holds up no message.
  const evaluator = new EvaluatorPool({ script: EVALUATOR_SCRIPT, workers: 1, memoryLimitMb: MEMORY_LIMIT_MB, log });
  const replays = new RunningReplays(createReplay({ config, store, log }, () => wakes.poller()));
  const router = adminRoutes({
    admin: config.admin,
    limits: { maxBytes: adminBodyBytes(config), budget: bodies },
    evaluator,
    replay: { run: (request) => replays.run(request), destinations: Object.keys(config.destinations) },
    destinations: new DestinationControl({ destinations: config.destinations, store, log }),
    clock,
    log,
  });
  return {
    operatorRoutes: [router],
    waiters: [replays],
    closers: [closer("transform tests", () => evaluator.close())],
  };
}

/** A payload of `admin.maxPayloadBytes` needs a small part of it. */
const MEMORY_LIMIT_MB = 64;

/** The replays that are under way: when the service stops they end after the batch that runs. */
class RunningReplays implements Service {
  readonly name = "admin";
  readonly #replay: Pick<Replay, "run">;
  readonly #stopping = sharedController();
  readonly #running = new Set<Promise<unknown>>();

  constructor(replay: Pick<Replay, "run">) {
    this.#replay = replay;
  }

  async run(request: ReplayRequest): Promise<{ readonly moved: number }> {
    const running = this.#replay.run(request, this.#stopping.signal);
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  async start(): Promise<void> {}

  async stop(cutoff: AbortSignal): Promise<void> {
    this.#stopping.abort(new StoppingError());
    // Also those whose callers have gone, for which no HTTP server waits. One that a hung database holds ends with the database's pool.
    await waitOrAbort(Promise.allSettled(this.#running), cutoff, "the end of the replays").catch(() => {});
  }
}

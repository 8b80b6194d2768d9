import type { Config } from "../src/config/types.ts";
import { createOperations } from "../src/core/operations/operations.ts";
import { EventStream } from "../src/http/admin/events.ts";
import { createHeavyReads } from "../src/http/admin/operation.ts";
import { adminRoutes } from "../src/http/admin/routes.ts";
import { readConsoleFiles } from "../src/http/console/page.ts";
import { consoleRoutes } from "../src/http/console/routes.ts";
import { Sessions } from "../src/http/console/sessions.ts";
import { accessOf } from "../src/http/credentials.ts";
import { StoppingError } from "../src/model/errors.ts";
import type { Service } from "../src/ports/runtime.ts";
import { EvaluatorPool } from "../src/runtime/evaluation/pool.ts";
import { everySource } from "../src/setup/sources.ts";
import { EVALUATOR_SCRIPT } from "../src/setup/transforms.ts";
import { sharedController, waitOrAbort } from "../src/time/wait.ts";
import { closer, type OperatorContext, type RoleParts } from "./context.ts";

/** Role `admin`: operators try transforms, replay rows, retry or discard parked ones, and pause destinations. */
export function adminRole(context: OperatorContext, readFiles = readConsoleFiles): RoleParts {
  const { config, configText, store, clock, log, bodies, wakes } = context;
  const { admin } = config;
  // Not the workers of the configured transforms: a trial must hold up no message.
  const evaluator = new EvaluatorPool({ script: EVALUATOR_SCRIPT, workers: 1, memoryLimitMb: MEMORY_LIMIT_MB, log });
  const changes = new RunningChanges();
  const operations = createOperations({
    ...context,
    sources: () => everySource(context),
    wakePoller: () => wakes.wake("poller"),
  });
  const { overview, show, audit } = operations;
  const heavyReads = createHeavyReads(clock);
  const readOverview = async () => show(await overview.read(SHOWN_MINUTES));
  const events = new EventStream({ read: () => heavyReads("events", readOverview), log });
  const auth = admin.insecure ? undefined : admin.auth;
  const sessions = auth === undefined || !admin.console ? undefined : new Sessions({ auth, clock });
  const limits = { maxBytes: adminBodyBytes(config), budget: bodies };
  const routes = adminRoutes({
    admin,
    sessions,
    limits,
    evaluator,
    run: (change) => changes.run(change),
    ...operations,
    events,
    heavyReads,
    configText,
    operations: store.operations,
    cells: store.cells,
    clock,
    log,
  });
  const consoles = admin.console
    ? consoleRoutes({
        files: readFiles(),
        auth,
        sessions,
        access: accessOf(auth, "admin", "the admin routes"),
        limits,
        clock,
        log,
        showsPayloads: admin.showPayloads,
        audit,
      })
    : [];
  return {
    routes: [...routes, ...consoles],
    waiters: [changes, events],
    closers: [closer("transform tests", () => evaluator.close())],
  };
}

/** Of the figures that the events carry. */
const SHOWN_MINUTES = 60;

/** The largest body of the admin routes: on the data port its own cap holds for them too. */
function adminBodyBytes({ admin, inbox, server }: Config): number {
  return server.managementPort === undefined
    ? Math.min(admin.maxPayloadBytes, inbox.maxBodyBytes)
    : admin.maxPayloadBytes;
}

/** A payload of `admin.maxPayloadBytes` needs a small part of it. */
const MEMORY_LIMIT_MB = 64;

/** The replays, retries and discards under way: when the service stops, they end after the running batch. */
class RunningChanges implements Service {
  readonly name = "admin";
  readonly #stopping = sharedController();
  readonly #running = new Set<Promise<unknown>>();

  async run<T>(change: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const running = change(this.#stopping.signal);
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
    // The HTTP server does not wait for a change whose caller has gone. If the database hangs, the change ends with the
    // pool.
    const ended = Promise.allSettled(this.#running);
    await waitOrAbort(ended, cutoff, "the end of the replays and the changes of parked rows").catch(() => {});
  }
}

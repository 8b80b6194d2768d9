import { v4 as uuidv4 } from "uuid";
import { Pull } from "../src/core/delivery/pull.ts";
import { pullRoutes } from "../src/http/pull/routes.ts";
import { PullWaiters } from "../src/http/pull/waiters.ts";
import type { Route } from "../src/http/routes.ts";
import type { ClaimToken, NewInboxRow } from "../src/model/rows.ts";
import type { Service } from "../src/ports/runtime.ts";
import type { RoleContext } from "./context.ts";

/** What pull clients need of the role `ingest`. */
interface PullParts {
  readonly routes: readonly Route[];
  /** Clients that wait for messages: stopped together with the HTTP servers. */
  readonly waiters: readonly Service[];
  /** Rows were stored: wakes the clients that wait for them. */
  readonly onStored: (rows: readonly Pick<NewInboxRow, "source" | "consumption">[]) => void;
}

/** Empty when `inbox.pull.enabled` is off. */
export function pullParts({ config, store, clock, log, metrics, redact, bodies }: RoleContext): PullParts {
  const { pull: settings, maxBodyBytes } = config.inbox;
  if (!settings.enabled) return { routes: [], waiters: [], onStored: () => {} };
  const sources = Object.entries(config.sources).flatMap(([name, { consumption }]) =>
    consumption === "pull" ? [name] : [],
  );
  const pull = new Pull({
    store: store.pull,
    maxAttempts: settings.maxAttempts,
    newToken: () => uuidv4() as ClaimToken,
    redact,
    metrics,
    clock,
    log,
  });
  const waiters = new PullWaiters({ sources, pull, clock, log });
  return {
    routes: pullRoutes({
      settings,
      limits: { maxBytes: maxBodyBytes, budget: bodies },
      sources,
      pull,
      waiters,
      clock,
      log,
    }),
    waiters: [waiters],
    onStored(rows) {
      const pulled = rows.filter((row) => row.consumption === "pull").map((row) => row.source);
      for (const source of new Set(pulled)) waiters.wake(source);
    },
  };
}

import { ConfigError, errorText, StoreError } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { Store } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { pause, timeout, waitOrAbort } from "../../../time/wait.ts";
import { type DestinationStatements, destinationStore } from "./destinations.ts";
import type { SqlHistory } from "./history.ts";
import { type JournalStatements, journalStore } from "./journal.ts";
import { type CellStatements, cellOfDatabase } from "./operations.ts";
import type { StatementRunner } from "./rows.ts";
import type { TableCheck } from "./schema.ts";

export type Facets = Pick<
  Store,
  "inbox" | "outbox" | "pull" | "messages" | "operations" | "parked" | "replay" | "retention"
>;

interface Database<S> {
  readonly pool: StatementRunner<S> & { close(): Promise<void> };
  readonly connections: Store["connections"];
  readonly ping: S;
  readonly cell: CellStatements<S>;
  readonly destinations: DestinationStatements<S>;
  readonly history: SqlHistory<S>;
  readonly journal: JournalStatements<S>;
  readonly facets: Facets;
  /** For the tables of the database, read after their check. */
  readonly checkedFacets: () => Promise<Facets>;
  readonly check: TableCheck;
  readonly migrate: Store["schema"]["migrate"];
  /** Undefined without notifications: pollers of other processes find the rows at their intervals. */
  readonly wake?: {
    listen(listener: () => void, sharesWatch?: boolean): Promise<void>;
    announce(): void;
    close(): Promise<void>;
  };
  /** Undefined if each poller polls for itself. */
  readonly watch?: {
    readonly isOthers: boolean;
    noteGlance(isWatched: boolean): void;
    leave(): Promise<void>;
  };
}

const DESTINATIONS_REMEDY =
  "run `svc migrate`, or the statement of migrations/<type>/007.do.destinations.sql with its name, and grant SELECT, INSERT and UPDATE on it";

export function sqlStore<S>(database: Database<S>, clock: Clock, log: Log): Store {
  const { pool, check, wake, watch, migrate, history } = database;
  const destinations = destinationStore(pool, database.destinations);
  const ping = async () => {
    await pool.run(database.ping);
  };
  const checkDestinations = async (areNeeded: boolean) => {
    const fault = await destinations.check();
    if (fault === undefined) return;
    const path = "database.destinationTableName";
    if (areNeeded) {
      const message = `the table cannot be used (${fault.message}), and pauses, rate limits and circuit breakers need it: ${DESTINATIONS_REMEDY}`;
      throw new ConfigError([{ path, message }]);
    }
    log.warn(
      { reason: fault.message, remedy: DESTINATIONS_REMEDY },
      `the table of ${path} cannot be used: destinations cannot be paused, and have no rate limit or circuit breaker, until you apply the remedy and restart`,
    );
  };
  const store: Store = {
    ...database.facets,
    destinations,
    history,
    histories: [history],
    journal: journalStore(pool, database.journal),
    schema: {
      migrate,
      checkColumns: async (tables, needs) => {
        await check.check(tables, needs ?? {});
        if (tables?.includes("destinations") !== false) await checkDestinations(needs?.destinations === true);
        if (tables?.includes("history") !== false) await history.check();
        Object.assign(store, await database.checkedFacets());
      },
      ...cellOfDatabase(pool, database.cell),
    },
    waitUntilReady: (timeoutMs, signal) => untilAnswered(ping, timeoutMs, signal, clock, log),
    ping,
    connections: database.connections,
    onOutboxWake: async (listener, sharesWatch) => await wake?.listen(listener, sharesWatch),
    announceOutbox: () => wake?.announce(),
    isOutboxWatched: () => watch?.isOthers === true,
    async glanceAtOutbox(overdueMs) {
      const glance = await store.outbox.glance(overdueMs);
      watch?.noteGlance(glance.isWatched);
      return glance;
    },
    leaveOutboxWatch: async () => await watch?.leave(),
    async close() {
      await wake?.close();
      await pool.close();
    },
  };
  return store;
}

/**
 * Pings until the database answers, and logs every ten seconds what it waits for.
 *
 * @param ping rejects while the database does not answer
 * @param timeoutMs for all tries together
 * @param signal ends the wait with its reason
 * @throws StoreError with the last failure after `timeoutMs`
 */
export async function untilAnswered(
  ping: () => Promise<void>,
  timeoutMs: number,
  signal: AbortSignal,
  clock: Clock,
  log: Log,
): Promise<void> {
  using limit = timeout(timeoutMs, "waiting for the database", signal);
  let last: unknown = "no connection attempt was answered; check database.url";
  let warnAt = clock.monotonic();
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, LAST_WAIT_MS)) {
    try {
      return await waitOrAbort(ping(), limit.signal, "waiting for the database");
    } catch (error) {
      signal.throwIfAborted();
      if (!limit.signal.aborted) last = error;
    }
    if (clock.monotonic() >= warnAt) {
      log.warn({ reason: errorText(last), timeoutMs }, "waiting for the database");
      warnAt = clock.monotonic() + WARN_EVERY_MS;
    }
    if (await pause(waitMs, limit.signal)) continue;
    signal.throwIfAborted();
    throw new StoreError("unavailable", `no database answered within ${timeoutMs} ms: ${errorText(last)}`);
  }
}

/** Shorter than those of `Backoff`: the start waits for this. */
const FIRST_WAIT_MS = 50;
const LAST_WAIT_MS = 1000;
const WARN_EVERY_MS = 10_000;

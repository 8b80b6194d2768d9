import type { Config } from "../config/types.ts";
import { CellMap } from "../core/cells/cellMap.ts";
import { Mover, type MoverOptions } from "../core/cells/mover.ts";
import { unfinishedOf } from "../core/cells/unfinished.ts";
import { type Audit, createAudit } from "../core/operations/audit.ts";
import { createRedactor } from "../core/redaction/redact.ts";
import { ConfigError, configErrorOf, errorText } from "../model/errors.ts";
import type { Log } from "../ports/runtime.ts";
import type { Store } from "../ports/store.ts";
import { systemClock } from "../time/clock.ts";
import { withTimeout } from "../time/wait.ts";
import { untilSignal } from "./database.ts";
import type { CommandIo } from "./io.ts";
import type { Prepared } from "./run.ts";

interface OpenCell {
  readonly name: string;
  readonly store: Store;
}

/** What the commands on cells work with. */
export interface CellsTools {
  readonly cells: readonly OpenCell[];
  /** Read once. */
  readonly map: CellMap;
  readonly mover: (options: Pick<MoverOptions, "newToken" | "onProgress" | "waitMs">) => Mover;
  /** In the first cell that answers. */
  readonly audit: Audit;
  /** What is not finished in a cell, whatever bucket it is of, for people. */
  readonly waitingIn: (cell: OpenCell) => Promise<readonly string[]>;
  /** Aborts on a signal. */
  readonly signal: AbortSignal;
}

/**
 * Runs a command on all cells of the configuration; some may be away.
 *
 * @param file `--config`
 * @param work returns what is printed
 * @throws ConfigError for a bad configuration, or one without cells; what the work throws
 */
export async function onCells(
  io: CommandIo,
  file: string | undefined,
  work: (tools: CellsTools) => Promise<string>,
): Promise<void> {
  // Imported late: `svc --version` should load no database driver.
  const { prepare } = await import("./run.ts");
  const prepared = prepare({ env: io.env, file, roles: [], once: false });
  if (prepared.config.database.cells.length === 0) {
    throw new ConfigError([{ path: "database.cells", message: "there are no cells: everything is in one database" }]);
  }
  await untilSignal(prepared, io, (signal) => runOnCells(prepared, io, work, signal));
}

async function runOnCells(
  { config, running: { log, flush }, secrets }: Prepared,
  { stdout }: CommandIo,
  work: (tools: CellsTools) => Promise<string>,
  signal: AbortSignal,
): Promise<void> {
  const { createCellStores } = await import("../../roles/database.ts");
  const cells = await createCellStores(config, systemClock, log);
  try {
    await Promise.all(cells.map((cell) => check(cell, config, log, signal)));
    const map = new CellMap({ cells, log });
    await map.refresh();
    const answering = map.cells().find(({ trouble }) => trouble === undefined);
    const { store } = cells.find(({ name }) => name === answering?.name) ?? (cells[0] as OpenCell);
    const ownKeySources = Object.entries(config.sources).flatMap(([name, { keyScope }]) =>
      keyScope === "source" ? [name] : [],
    );
    const result = await work({
      cells,
      map,
      mover: (options) => {
        const serverOf = (cell: string) => map.cells().find(({ name }) => name === cell)?.server;
        return new Mover({ cells, serverOf, ownKeySources, clock: systemClock, log, ...options });
      },
      audit: createAudit({ store: store.operations, redact: createRedactor(secrets, LONGEST_NOTE), log }),
      waitingIn: (cell) => waitingIn(cell, signal),
      signal,
    });
    flush();
    stdout.write(result);
  } finally {
    await Promise.all(cells.map(({ store }) => store.close()));
    flush();
  }
}

/** Reads the types of an owner's columns. A cell that is away has none read, and nothing is moved then. */
async function check({ name, store }: OpenCell, config: Config, log: Log, signal: AbortSignal): Promise<void> {
  const limitMs = Math.min(config.database.startupTimeoutMs, LONGEST_CHECK_MS);
  try {
    await withTimeout(limitMs, "the check of the tables", () => store.schema.checkColumns(["inbox", "outbox"]), signal);
  } catch (error) {
    if (error instanceof ConfigError) throw configErrorOf(name, error);
    if (signal.aborted) throw error;
    log.debug({ cell: name, reason: errorText(error) }, "a cell is away");
  }
}

const LONGEST_CHECK_MS = 5000;
/** Characters of a text that is kept with a change. */
const LONGEST_NOTE = 2000;

async function waitingIn({ store }: OpenCell, signal: AbortSignal): Promise<readonly string[]> {
  const { waiting } = await unfinishedOf(store.buckets, { has: () => true }, [], signal);
  const counts = new Map<string, number>();
  for (const { counts: own } of waiting.values())
    for (const reason of ["relay", "pull"] as const)
      counts.set(reason, (counts.get(reason) ?? 0) + (own.get(reason) ?? 0));
  const { byDestination, parked } = await store.outbox.backlog();
  const unsent = [...byDestination.values()].reduce((sum, { pending, processing }) => sum + pending + processing, 0);
  const named = [
    [unsent - parked, "outbox rows"],
    [parked, "parked rows"],
    [counts.get("relay") ?? 0, "inbox rows before the relay"],
    [counts.get("pull") ?? 0, "rows for pull clients"],
  ] as const;
  return named.flatMap(([count, of]) => (count > 0 ? [`${count} ${of}`] : []));
}

import { createStore } from "../../roles/database.ts";
import { createReplay } from "../../roles/finishedRows.ts";
import { didYouMean } from "../config/kinds.ts";
import type { Config } from "../config/types.ts";
import type { ReplayRequest } from "../core/finished/requests.ts";
import { ConfigError } from "../model/errors.ts";
import type { FinishedRow } from "../ports/finishedRows.ts";
import { systemClock } from "../time/clock.ts";
import type { CommandIo } from "./config.ts";
import { type Columns, plainText, textTable } from "./io.ts";
import { type Prepared, prepare, untilSignalled } from "./run.ts";

interface ReplayRowsArguments {
  /** `--config` */
  readonly file: string | undefined;
  /** At least one field is set. */
  readonly request: ReplayRequest;
  readonly dryRun: boolean;
}

/**
 * `svc replay`: waits for the database, checks the tables, and moves the rows or, in a dry run, shows them. A signal ends it between two
 * batches, with exit code 1.
 *
 * @throws ConfigError for a bad configuration or an unknown destination, StoreError when no database answers, ReplayInterruptedError
 */
export async function replayRows(args: ReplayRowsArguments, io: CommandIo): Promise<void> {
  const prepared = prepare({ env: io.env, file: args.file, roles: [], once: false });
  checkDestination(prepared.config, args.request);
  await untilSignalled(prepared, io, (signal) => work(prepared, args, io, signal));
}

async function work(
  { config, running }: Prepared,
  { request, dryRun }: ReplayRowsArguments,
  { stdout }: CommandIo,
  signal: AbortSignal,
): Promise<void> {
  const { log, flush } = running;
  const store = await createStore(config, systemClock, log);
  try {
    await store.waitUntilReady(config.database.startupTimeoutMs, signal);
    await store.schema.checkColumns(["outbox"]);
    const replay = createReplay({ config, store, log });
    if (dryRun) {
      const { count, sample } = await replay.preview(request, SAMPLE_SIZE, signal);
      const shown = sample.length < count ? `; the first ${sample.length} of them:` : "";
      stdout.write(`${rowsOf(count)} would be moved to pending${shown}\n${textTable(sample, COLUMNS)}`);
    } else {
      const { moved } = await replay.run(request, signal);
      // The line for people comes last.
      flush();
      stdout.write(`${rowsOf(moved)} moved to pending\n`);
    }
  } finally {
    await store.close();
  }
}

const SAMPLE_SIZE = 10;

function checkDestination({ destinations }: Config, { destination }: ReplayRequest): void {
  if (destination === undefined || Object.hasOwn(destinations, destination)) return;
  const names = Object.keys(destinations);
  const known = names.length === 0 ? "there are none" : `the destinations are ${names.join(", ")}`;
  const message = `there is no destination ${JSON.stringify(destination)}: ${known}${didYouMean(destination, names)}`;
  throw new ConfigError([{ path: "--destination", message }]);
}

function rowsOf(count: number): string {
  return count === 1 ? "1 row" : `${count} rows`;
}

const COLUMNS: Columns<FinishedRow> = [
  ["id", (row) => row.id],
  ["topic", (row) => plainText(row.topic ?? "", 40)],
  ["key", (row) => plainText(row.key ?? "", 40)],
  ["state", (row) => row.state],
  ["attempt", (row) => String(row.attempt)],
  ["created", (row) => row.createdAt?.toISOString() ?? ""],
  ["last error", (row) => plainText(row.lastError ?? "", 80)],
];
